#include "comm/levels/steps.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>

#include "codec/codec.h"
#include "executor/host/reduction.h"
#include "status/error.h"

namespace narrowcast::comm {
namespace {

using namespace executor;

// Up to this size a call takes the fewest steps; longer ones send the fewest bytes.
constexpr uint64_t short_bytes = 64 << 10;

// A call is cut into so many parts, or more if their values would not fit into an area. More and shorter ones overlap
// better, but each has the latency of its steps.
constexpr uint64_t wanted_parts = 4, least_part_bytes = 8 << 20;

constexpr uint64_t ceil_div(uint64_t dividend, uint64_t divisor) { return (dividend + divisor - 1) / divisor; }

// Intermediate values are boxes in the two areas of a slot. [a][b][c] means a planes of b rows of c values. After a
// failure the steps that follow do nothing.
class Steps {
 public:
  Steps(const LevelShape& shape, bool rounds_partial_sums, StepTaker& taker, const Call& call)
      : taker_(taker),
        call_(call),
        shape_(shape),
        rounds_partial_sums_(rounds_partial_sums),
        groups_(static_cast<uint64_t>(shape_.groups)),
        locals_(static_cast<uint64_t>(shape_.of_group)),
        bytes_(ncast_dtype_bytes(call.dtype)),
        sum_dtype_(host::accumulator_type(call.dtype)),
        sum_bytes_(ncast_dtype_bytes(sum_dtype_)),
        root_group_(call.peer / shape_.of_group),
        root_index_(call.peer % shape_.of_group),
        exact_codec_(codec::canonical(call.codec) == NCAST_CODEC_RAW ? NCAST_CODEC_RAW : NCAST_CODEC_AUTO),
        stream_(call.stream) {}

  ncast_status run() {
    switch (call_.operation) {
      case Operation::broadcast: broadcast(); break;
      case Operation::reduce: reduce(); break;
      case Operation::gather: gather(); break;
      case Operation::scatter: scatter(); break;
      case Operation::all_gather: all_gather(); break;
      case Operation::all_to_all: all_to_all(); break;
      case Operation::reduce_scatter: reduce_scatter(); break;
      case Operation::all_reduce: all_reduce(); break;
      case Operation::send:
      case Operation::recv:
      case Operation::all_to_all_v: return fail(NCAST_INTERNAL, "a call without steps");
    }
    return status_;
  }

 private:
  uint64_t ranks() const { return groups_ * locals_; }
  bool is_root() const { return is_in_root_group() && shape_.index == root_index_; }
  bool is_in_root_group() const { return shape_.group == root_group_; }
  // Of this part.
  void* area(int number) const { return taker_.area(2 * slot_ + number); }
  // The values of the user's buffers from number `elem` on.
  const void* sent(uint64_t elem) const { return static_cast<const std::byte*>(call_.send) + elem * bytes_; }
  void* received(uint64_t elem) const { return static_cast<std::byte*>(call_.recv) + elem * bytes_; }

  // The user's buffers and the intermediate values between levels are ordered differently: by group and index,
  // and by index and group.
  Strides by_group(uint64_t elems) const { return {locals_ * elems, elems}; }
  Strides by_index(uint64_t elems) const { return {elems, locals_ * elems}; }  // visits [index][group]
  Strides packed(uint64_t rows, uint64_t elems) const { return {rows * elems, elems}; }

  template <typename Step>
  void step(Step&& run) {
    if (status_ == NCAST_OK) status_ = std::forward<Step>(run)();
  }

  template <typename Work>
  void locally(Work&& work) {
    if (LocalWork* const local = taker_.work()) step([&] { return std::forward<Work>(work)(*local); });
  }
  void copy(const void* from, Strides from_strides, void* to, Strides to_strides, Box box) {
    locally([&](LocalWork& work) { return work.copy(from, from_strides, to, to_strides, box, call_.dtype, stream_); });
  }

  // Makes a call of one level. sub: what differs from the whole call.
  void within(Call sub) {
    sub.codec = exact_codec_;
    take(sub, false);
  }
  void between(Call sub, std::optional<ncast_codec> codec = std::nullopt) {
    sub.codec = codec.value_or(call_.codec);
    take(sub, true);
  }
  void take(Call& sub, bool is_between) {
    sub.stream = stream_;
    step([&] { return taker_.take(sub, is_between, slot_); });
  }
  Call moving(Operation operation, const void* send, void* recv, uint64_t count, int root = 0) const {
    return {.operation = operation, .send = send, .recv = recv, .count = count, .dtype = call_.dtype, .peer = root};
  }
  // As in a call of one level, types that the codec does not support are not encoded by it.
  ncast_codec codec_of_sums() const {
    const codec::Row* const row = codec::find_row(call_.codec);
    return row == nullptr || row->type(call_.dtype) != nullptr ? call_.codec : ncast_codec{NCAST_CODEC_AUTO};
  }
  Call summing(Operation operation, const void* send, void* recv, uint64_t count) const {
    return {.operation = operation,
            .send = send,
            .recv = recv,
            .count = count,
            .dtype = sum_dtype_,
            .redop = call_.redop == NCAST_AVG ? NCAST_SUM : call_.redop};
  }

  // Steps of one level, and the local work after them, on `elems` values of each rank from number `first` on.
  struct Stage {
    bool is_between;
    std::function<void(uint64_t first, uint64_t elems)> run;
  };
  static constexpr bool is_within = false, is_between = true;

  // Pieces are multiples of 16 bytes, because kernels are slower where values are not aligned to that.
  uint64_t unit() const { return 16 / bytes_; }

  // Cuts `count` values into parts of a multiple of `granule`, and runs the stages of each. all_bytes: that each value
  // takes in an area. The stages of a part follow each other; stages of different levels run at the same time.
  void in_parts(uint64_t count, uint64_t all_bytes, uint64_t granule, std::initializer_list<Stage> stages) {
    if (count == 0) return;
    const uint64_t wanted = std::clamp<uint64_t>(count * all_bytes / least_part_bytes, 1, wanted_parts);
    const uint64_t fitting = StepTaker::area_bytes / all_bytes / granule * granule;
    const uint64_t elems = std::min(fitting, ceil_div(ceil_div(count, wanted), granule) * granule);
    const uint64_t parts = ceil_div(count, elems);
    LocalWork* const work = taker_.work();
    const ncast_stream streams[] = {call_.stream, taker_.overlaps() && parts > 1 ? work->side_stream(0) : call_.stream};
    const bool overlap = streams[is_between] != call_.stream;
    ncast_stream last[] = {call_.stream, call_.stream};  // stream of the last stage in each slot
    const auto mark = [&](int slot) {
      if (overlap) step([&] { return work->set_mark(slot, last[slot]); });
    };
    const auto follow = [&](int slot, ncast_stream stream) {
      if (stream != last[slot]) step([&] { return work->wait_for_mark(slot, stream); });
    };
    for (const int slot : {0, 1}) mark(slot);
    // In a turn, each stage runs on the part after that of the next stage. At most two parts are unfinished.
    for (uint64_t turn = 0; turn < parts + stages.size() - 1; ++turn) {
      for (size_t number = stages.size(); number-- > 0;) {
        if (turn < number || turn - number >= parts) continue;
        const uint64_t part = turn - number;
        const Stage& stage = stages.begin()[number];
        slot_ = static_cast<int>(part % 2);
        stream_ = streams[stage.is_between];
        follow(slot_, stream_);
        stage.run(part * elems, std::min(elems, count - part * elems));
        last[slot_] = stream_;
        mark(slot_);
      }
    }
    for (const int slot : {0, 1}) follow(slot, call_.stream);
    stream_ = call_.stream;
    slot_ = 0;
  }

  // Accumulators of this rank's values, packed in area 0. Overwrites area 1.
  void load(const void* from, Strides strides, Box box) {
    const uint64_t count = box.planes * box.rows * box.elems;
    const bool widens = sum_dtype_ != call_.dtype;
    if (box.planes > 1 || !widens || call_.factor) {
      void* const to = area(widens ? 1 : 0);
      copy(from, strides, to, packed(box.rows, box.elems), box);
      if (call_.factor)
        locally([&](LocalWork& work) { return work.scale(to, to, count, call_.dtype, *call_.factor, stream_); });
      from = to;
    }
    if (widens) locally([&](LocalWork& work) { return work.widen(from, area(0), count, call_.dtype, stream_); });
  }

  // If the user prefers shorter payloads: in area 1, as accumulators, from which codecs remove the bits that are zero.
  void round_partial_sums(uint64_t count) {
    if (!rounds_partial_sums_ || sum_dtype_ == call_.dtype) return;
    locally([&](LocalWork& work) { return work.finish(area(1), area(0), count, call_.dtype, NCAST_SUM, 1, stream_); });
    locally([&](LocalWork& work) { return work.widen(area(0), area(1), count, call_.dtype, stream_); });
  }

  // Of area 0, [index][group][piece], every rank gets the sums of its piece, there. They are added in the order of the
  // ranks of a group, then of the groups.
  void sum_within(uint64_t piece) {
    within(summing(Operation::reduce_scatter, area(0), area(1), groups_ * piece));
    round_partial_sums(groups_ * piece);
  }
  void sum_between(uint64_t piece) {
    between(summing(Operation::reduce_scatter, area(1), area(0), piece), codec_of_sums());
  }

  void finish(void* to, uint64_t count) {
    const auto ranks = shape_.groups * shape_.of_group;
    locally([&](LocalWork& work) { return work.finish(area(0), to, count, call_.dtype, call_.redop, ranks, stream_); });
  }

  // The size of a piece if each rank adds one of `count` values. The last pieces may be filled up with zeros.
  uint64_t piece_of(uint64_t count) const { return ceil_div(count, ranks() * unit()) * unit(); }

  // The first stage of calls that add pieces, and the beginning of the second one: the results of this rank's piece are
  // in area 1.
  void sum_part_within(uint64_t first, uint64_t count) {
    const uint64_t piece = piece_of(count);
    load(sent(first), {}, {1, 1, count});
    if (const uint64_t rest = piece * ranks() - count; rest != 0)
      locally([&](LocalWork& work) {
        return work.clear(static_cast<std::byte*>(area(0)) + count * sum_bytes_, rest * sum_bytes_, stream_);
      });
    sum_within(piece);
  }
  void sum_part_between(uint64_t piece) {
    sum_between(piece);
    finish(area(1), piece);
  }

  void all_reduce() {
    // Ranks of different indices get the same bits from codecs that are exact; stochastic rounding depends on more.
    if (call_.count * sum_bytes_ <= short_bytes && codec::is_exact(call_.codec)) {
      load(call_.send, {}, {1, 1, call_.count});
      within(summing(Operation::all_reduce, area(0), area(1), call_.count));
      round_partial_sums(call_.count);
      between(summing(Operation::all_reduce, area(1), area(0), call_.count), codec_of_sums());
      return finish(call_.recv, call_.count);
    }
    in_parts(call_.count, sum_bytes_, ranks() * unit(),
             {{is_within, [&](uint64_t first, uint64_t count) { sum_part_within(first, count); }},
              {is_between,
               [&](uint64_t, uint64_t count) {
                 sum_part_between(piece_of(count));
                 between(moving(Operation::all_gather, area(1), area(0), piece_of(count)), call_.result_codec);
               }},
              {is_within, [&](uint64_t first, uint64_t count) {
                 const uint64_t piece = piece_of(count);
                 const bool fits = piece * ranks() == count;
                 within(moving(Operation::all_gather, area(0), fits ? received(first) : area(1), groups_ * piece));
                 if (!fits) copy(area(1), {}, received(first), {}, {1, 1, count});
               }}});
  }

  void reduce() {
    in_parts(call_.count, sum_bytes_, ranks() * unit(),
             {{is_within, [&](uint64_t first, uint64_t count) { sum_part_within(first, count); }},
              {is_between,
               [&](uint64_t, uint64_t count) {
                 sum_part_between(piece_of(count));
                 between(moving(Operation::gather, area(1), area(0), piece_of(count), root_group_), exact_codec_);
               }},
              {is_within, [&](uint64_t first, uint64_t count) {
                 if (!is_in_root_group()) return;
                 within(moving(Operation::gather, area(0), area(1), groups_ * piece_of(count), root_index_));
                 if (is_root()) copy(area(1), {}, received(first), {}, {1, 1, count});
               }}});
  }

  void reduce_scatter() {
    in_parts(call_.count, ranks() * sum_bytes_, unit(),
             {{is_within,
               [&](uint64_t first, uint64_t elems) {
                 load(sent(first), by_index(call_.count), {locals_, groups_, elems});
                 sum_within(elems);
               }},
              {is_between, [&](uint64_t first, uint64_t elems) {
                 sum_between(elems);
                 finish(received(first), elems);
               }}});
  }

  void all_gather() {
    const uint64_t count = call_.count;
    if (count * locals_ * bytes_ <= short_bytes && codec::is_exact(call_.codec)) {
      void* const of_group = received(static_cast<uint64_t>(shape_.group) * locals_ * count);
      within(moving(Operation::all_gather, call_.send, of_group, count));
      return between(moving(Operation::all_gather, of_group, call_.recv, locals_ * count));
    }
    in_parts(
        count, ranks() * bytes_, unit(),
        {{is_between,
          [&](uint64_t first, uint64_t elems) { between(moving(Operation::all_gather, sent(first), area(0), elems)); }},
         {is_within, [&](uint64_t first, uint64_t elems) {
            within(moving(Operation::all_gather, area(0), area(1), groups_ * elems));
            copy(area(1), packed(groups_, elems), received(first), by_index(count), {locals_, groups_, elems});
          }}});
  }

  void broadcast() {
    const uint64_t granule = locals_ * unit();
    const uint64_t in_pieces = call_.count * bytes_ <= short_bytes ? 0 : call_.count / granule * granule;
    // The piece of this rank, of part of the values.
    const auto own = [&](uint64_t first, uint64_t count) {
      return received(first + static_cast<uint64_t>(shape_.index) * (count / locals_));
    };
    in_parts(in_pieces, bytes_, granule,
             {{is_within,
               [&](uint64_t first, uint64_t count) {
                 if (!is_in_root_group()) return;
                 const void* const from = is_root() ? sent(first) : nullptr;
                 within(moving(Operation::scatter, from, own(first, count), count / locals_, root_index_));
               }},
              {is_between,
               [&](uint64_t first, uint64_t count) {
                 void* const piece = own(first, count);
                 between(moving(Operation::broadcast, piece, piece, count / locals_, root_group_));
               }},
              {is_within, [&](uint64_t first, uint64_t count) {
                 within(moving(Operation::all_gather, own(first, count), received(first), count / locals_));
               }}});
    if (in_pieces == call_.count) return;
    void* const rest = received(in_pieces);
    const uint64_t count = call_.count - in_pieces;
    if (shape_.index == root_index_)
      between(moving(Operation::broadcast, is_root() ? sent(in_pieces) : nullptr, rest, count, root_group_));
    within(moving(Operation::broadcast, rest, rest, count, root_index_));
  }

  void all_to_all() {
    in_parts(call_.count, ranks() * bytes_, unit(),
             {{is_within,
               [&](uint64_t first, uint64_t elems) {
                 const Box by_ranks{locals_, groups_, elems};
                 copy(sent(first), by_index(call_.count), area(0), packed(groups_, elems), by_ranks);
                 within(moving(Operation::all_to_all, area(0), area(1), groups_ * elems));
                 copy(area(1), packed(groups_, elems), area(0), by_index(elems), by_ranks);
               }},
              {is_between, [&](uint64_t first, uint64_t elems) {
                 between(moving(Operation::all_to_all, area(0), area(1), locals_ * elems));
                 copy(area(1), by_group(elems), received(first), by_group(call_.count), {groups_, locals_, elems});
               }}});
  }

  void gather() {
    in_parts(call_.count, ranks() * bytes_, unit(),
             {{is_between,
               [&](uint64_t first, uint64_t elems) {
                 between(moving(Operation::gather, sent(first), area(0), elems, root_group_));
               }},
              {is_within, [&](uint64_t first, uint64_t elems) {
                 if (!is_in_root_group()) return;
                 within(moving(Operation::gather, area(0), area(1), groups_ * elems, root_index_));
                 if (is_root())
                   copy(area(1), packed(groups_, elems), received(first), by_index(call_.count),
                        {locals_, groups_, elems});
               }}});
  }

  void scatter() {
    in_parts(call_.count, ranks() * bytes_, unit(),
             {{is_within,
               [&](uint64_t first, uint64_t elems) {
                 if (is_root())
                   copy(sent(first), by_index(call_.count), area(0), packed(groups_, elems), {locals_, groups_, elems});
                 if (is_in_root_group())
                   within(moving(Operation::scatter, area(0), area(1), groups_ * elems, root_index_));
               }},
              {is_between, [&](uint64_t first, uint64_t elems) {
                 between(moving(Operation::scatter, area(1), received(first), elems, root_group_));
               }}});
  }

  StepTaker& taker_;
  const Call& call_;
  const LevelShape shape_;
  const bool rounds_partial_sums_;
  const uint64_t groups_, locals_, bytes_;
  const ncast_dtype sum_dtype_;
  const uint64_t sum_bytes_;
  const int root_group_, root_index_;
  const ncast_codec exact_codec_;
  // Of the stage that runs.
  ncast_stream stream_;
  int slot_ = 0;
  ncast_status status_ = NCAST_OK;
};

}  // namespace

ncast_status take_steps(const LevelShape& shape, bool rounds_partial_sums, StepTaker& taker, const Call& call) {
  return Steps(shape, rounds_partial_sums, taker, call).run();
}

}  // namespace narrowcast::comm
