#include "executor/cuda/generated/source.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "executor/cuda/generated/text.h"
#include "select/block_shape.h"
#include "status/error.h"

namespace narrowcast::executor::cuda::generated {
namespace {

constexpr const char* window_include = R"(
#include "codec/window/kernel.cuh"
)";
constexpr const char* raw_include = R"(
#include "codec/raw/kernel.cuh"
)";
constexpr const char* program_include = R"(
#include "executor/cuda/generated/plan_kernel.cuh"
)";
constexpr const char* move_include = R"(
#include "executor/cuda/blocks/move.cuh"
)";
constexpr const char* reduce_include = R"(
#include "executor/cuda/blocks/reduce.cuh"
)";

// The ends of a group's rings, by the thread that holds them.
struct Ends {
  std::vector<std::pair<int, uint32_t>> sending, receiving;  // peer and ring

  static uint32_t find(std::vector<std::pair<int, uint32_t>>& ends, int peer, uint32_t ring) {
    const std::pair end{peer, ring};
    const auto found = std::ranges::find(ends, end);
    if (found != ends.end()) return static_cast<uint32_t>(found - ends.begin());
    ends.push_back(end);
    return static_cast<uint32_t>(ends.size() - 1);
  }
};

// An item as text and words of the table. Items with equal text differ in their words only.
struct Emitted {
  std::vector<std::string> lines;  // refer to the words as q[i], and to the end of the item as %END
  std::vector<uint32_t> words;
  // What the warp loads first, if that may begin during the previous item.
  ItemHead::Next first = ItemHead::nothing;
  uint32_t first_word = 0;      // the chunk or the receiving end
  bool is_transparent = false;  // the previous item may begin loads of the next one
  int stage = 0;
  bool settles = false;
  // Receives one message and stores it in one chunk: several of these can be received in any order.
  bool is_plain_receive = false;
  bool coded = false;
};

class GroupEmitter {
 public:
  GroupEmitter(const Program& program, int rank, uint32_t group)
      : program_(program),
        rank_(rank),
        group_(group),
        items_(program.ranks[static_cast<size_t>(rank)].groups[group].items) {}

  // Assigns the threads' ends: first those to the next rank.
  void find_ends() {
    std::set<std::pair<uint32_t, uint32_t>> sending, receiving;  // ring and distance
    const auto ranks = static_cast<uint32_t>(program_.rank_count());
    const auto distance = [&](int peer) { return (static_cast<uint32_t>(peer - rank_) + ranks) % ranks; };
    const auto at = [&](uint32_t steps) { return static_cast<int>((static_cast<uint32_t>(rank_) + steps) % ranks); };
    for (const Item& item : items_) {
      for (const Place& place : item.to)
        if (place.kind == Place::Kind::message) sending.insert({message(place).ring, distance(message(place).to)});
      for (const Place& place : item.from)
        if (place.kind == Place::Kind::message) receiving.insert({message(place).ring, distance(message(place).from)});
    }
    for (const auto& [ring, steps] : sending) Ends::find(ends_.sending, at(steps), ring);
    for (const auto& [ring, steps] : receiving) Ends::find(ends_.receiving, at(steps), ring);
  }
  const Ends& ends() const { return ends_; }

  void emit() {
    for (const Item& item : items_) add(emitted(item));
    link();
    merge();
  }
  const std::vector<Emitted>& items() const { return emitted_; }
  size_t loops() const { return loops_; }
  const std::string& body() const { return body_; }
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  const Message& message(const Place& place) const { return program_.messages[place.message]; }
  uint32_t sending_end(const Place& place) { return Ends::find(ends_.sending, message(place).to, message(place).ring); }
  uint32_t receiving_end(const Place& place) {
    return Ends::find(ends_.receiving, message(place).from, message(place).ring);
  }
  uint32_t chunk(const Place& place) const {
    switch (place.buffer) {
      case plan::Buffer::input:
        return ChunkRef::of(ChunkRef::input, place.chunk / program_.chunks, place.chunk % program_.chunks).word;
      case plan::Buffer::output:
        return ChunkRef::of(ChunkRef::output, place.chunk / program_.chunks, place.chunk % program_.chunks).word;
      default: return ChunkRef::of(ChunkRef::scratch, 0, place.chunk).word;
    }
  }
  static const char* boolean(bool value) { return value ? "true" : "false"; }

  // Adds words to the item; returns the index of the first.
  static size_t push(Emitted& to, std::initializer_list<uint32_t> words) {
    const size_t first = to.words.size();
    to.words.insert(to.words.end(), words);
    return first;
  }

  Emitted emitted(const Item& item) {
    Emitted to;
    to.stage = item.stage;
    to.words = {0, 0};  // the head
    const Semaphore* const semaphore = program_.semaphores.empty() ? nullptr : &program_.semaphores[item.channel];
    switch (item.kind) {
      case Item::Kind::publish:
        to.is_transparent = true;
        to.lines.push_back(text("w.publish(q[%zu]);", push(to, {item.point})));
        return to;
      case Item::Kind::await:
        to.lines.push_back(text("if (!w.await(q[%zu])) return false;", push(to, {item.point})));
        return to;
      case Item::Kind::signal: {
        to.is_transparent = true;
        const auto position = static_cast<uint32_t>(std::ranges::find(semaphore->signal_groups, group_) -
                                                    semaphore->signal_groups.begin());
        const size_t at = push(to, {static_cast<uint32_t>(semaphore->to), semaphore->first_word + position,
                                    sent_signal(item.channel) + position});
        to.lines.push_back(
            text("w.template signal<%s>(q[%zu], q[%zu], q[%zu]);", boolean(item.relaxed), at, at + 1, at + 2));
        return to;
      }
      case Item::Kind::wait: {
        const size_t at = push(
            to, {static_cast<uint32_t>(semaphore->from), semaphore->first_word,
                 static_cast<uint32_t>(semaphore->signal_groups.size()), semaphore->initial, waited(item.channel)});
        to.lines.push_back(text("if (!w.wait_for_signal(q[%zu], q[%zu], q[%zu], q[%zu], q[%zu])) return false;", at,
                                at + 1, at + 2, at + 3, at + 4));
        return to;
      }
      default: break;
    }
    to.settles = item.settles;
    for (const Place& place : item.from)
      if (place.packets && place.kind == Place::Kind::local)
        to.lines.push_back(text("if (!w.wait_for_packets(q[%zu])) return false;", push(to, {place.chunk})));
    const bool can_begin = to.lines.empty() && !item.settles;
    if (item.kind == Item::Kind::reduce) {
      add_reduction(item, to);
    } else {
      add_source(item, to);
    }
    if (!can_begin) to.first = ItemHead::nothing;
    to.is_plain_receive = to.is_plain_receive && can_begin;
    return to;
  }

  void add_source(const Item& item, Emitted& to) {
    const Place& from = item.from[0];
    switch (from.kind) {
      case Place::Kind::local:
        to.first = ItemHead::chunk;
        to.first_word = chunk(from);
        to.lines.push_back(text("w.load(q[%zu]);", push(to, {chunk(from)})));
        add_destinations(item, to, nullptr);
        return;
      case Place::Kind::remote: {
        const size_t at = push(to, {static_cast<uint32_t>(from.rank), chunk(from)});
        to.lines.push_back(text("if (!w.load_remote(q[%zu], q[%zu])) return false;", at, at + 1));
        add_destinations(item, to, nullptr);
        return;
      }
      case Place::Kind::message: {
        to.first = ItemHead::message;
        to.first_word = 1u << receiving_end(from);
        // The payload is forwarded as it is to destinations with the same codec; all others need its values.
        const bool decodes = !std::ranges::all_of(item.to, [&](const Place& place) {
          return place.kind == Place::Kind::message && place.coded == from.coded;
        });
        to.lines.push_back(text("if (!w.template receive<%s, %s>(q[%zu])) return false;", boolean(from.coded),
                                boolean(decodes), push(to, {receiving_end(from)})));
        to.is_plain_receive = item.to.size() == 1 && item.to[0].kind == Place::Kind::local && !item.to[0].packets;
        to.coded = from.coded;
        add_destinations(item, to, &from);
        return;
      }
    }
  }

  void add_reduction(const Item& item, Emitted& to) {
    std::vector<Place> sources = item.from;
    // As in reducing_warp.cuh: nothing waits for the own values, and reduced() commutes.
    if (sources[0].kind == Place::Kind::local && sources[1].kind == Place::Kind::message)
      std::swap(sources[0], sources[1]);
    const size_t first = to.words.size();
    bool coded = false;
    for (const Place& from : sources) {
      SourceRef source{};
      switch (from.kind) {
        case Place::Kind::local:
          source = SourceRef::of(SourceRef::local, 0, chunk(from));
          if (to.first == ItemHead::nothing) {
            to.first = ItemHead::chunk;
            to.first_word = chunk(from);
          }
          break;
        case Place::Kind::remote:
          source = SourceRef::of(SourceRef::remote, static_cast<uint32_t>(from.rank), chunk(from));
          break;
        case Place::Kind::message: source = SourceRef::of(SourceRef::message, receiving_end(from), 0); break;
      }
      coded = coded || from.coded;
      push(to, {source.kind_and_number, source.chunk});
    }
    // Only averages do anything else at the end.
    const bool finishes = item.finishes && program_.op == NCAST_AVG;
    to.lines.push_back(text("if (!w.template reduce<%s, %s>(q + %zu, %zu)) return false;", boolean(coded),
                            boolean(finishes), first, sources.size()));
    add_destinations(item, to, nullptr);
  }

  // from: the message that the item copies, if it does.
  void add_destinations(const Item& item, Emitted& to, const Place* from) {
    // Rings' slots first when a message is passed on, because another rank waits for it.
    const auto add_sends = [&] {
      for (const bool coded : {false, true}) {
        const bool forwards = from != nullptr && from->coded == coded;
        const char* const function = forwards ? "forward" : coded ? "send_encoded" : "send";
        EndMaskList masks;
        for (const Place& place : item.to)
          if (place.kind == Place::Kind::message && place.coded == coded) masks.add(sending_end(place));
        for (const uint32_t mask : masks.masks)
          to.lines.push_back(text("if (!w.%s(q[%zu])) return false;", function, push(to, {mask})));
      }
    };
    if (from != nullptr) add_sends();
    for (const Place& place : item.to) {
      if (place.kind == Place::Kind::local) {
        to.lines.push_back(text("w.store(q[%zu]);", push(to, {chunk(place)})));
        if (place.packets) add_packet_flag(static_cast<uint32_t>(rank_), place, to);
      } else if (place.kind == Place::Kind::remote) {
        const size_t at = push(to, {static_cast<uint32_t>(place.rank), chunk(place)});
        to.lines.push_back(text("if (!w.store_remote(q[%zu], q[%zu])) return false;", at, at + 1));
        if (place.packets) add_packet_flag(static_cast<uint32_t>(place.rank), place, to);
      }
    }
    if (from == nullptr) add_sends();
  }
  static void add_packet_flag(uint32_t rank, const Place& place, Emitted& to) {
    const size_t at = push(to, {rank, place.chunk});
    to.lines.push_back(text("w.raise_packets(q[%zu], q[%zu]);", at, at + 1));
  }

  // Masks of ends for one put each: an end once, and no more ends than a signal queue holds.
  struct EndMaskList {
    std::vector<uint32_t> masks;
    void add(uint32_t end) {
      for (uint32_t& mask : masks) {
        if ((mask >> end & 1) != 0 || static_cast<uint32_t>(__builtin_popcount(mask)) == channel::max_gpu_ranks)
          continue;
        mask |= 1u << end;
        return;
      }
      masks.push_back(1u << end);
    }
  };

  uint32_t sent_signal(uint32_t channel) const {
    uint32_t number = 0;
    for (uint32_t i = 0; i < channel; ++i)
      if (program_.semaphores[i].from == rank_)
        number += static_cast<uint32_t>(program_.semaphores[i].signal_groups.size());
    return number;
  }
  uint32_t waited(uint32_t channel) const {
    uint32_t number = 0;
    for (uint32_t i = 0; i < channel; ++i) {
      const Semaphore& semaphore = program_.semaphores[i];
      if (semaphore.to == rank_ && semaphore.is_waited_for) ++number;
    }
    return number;
  }

  // Adds an item. Consecutive messages from different ends that are stored in one chunk each become one item.
  void add(Emitted one) {
    if (one.is_plain_receive && !emitted_.empty()) {
      Emitted& last = emitted_.back();
      const bool is_of_other_end = (last.first_word & one.first_word) == 0;
      if (last.is_plain_receive && last.stage == one.stage && last.coded == one.coded && is_of_other_end) {
        last.words.insert(last.words.end(), one.words.begin() + ItemHead::words, one.words.end());
        last.first_word |= one.first_word;
        last.lines = {text("if (!w.template receive_any<%s>(q + %u, %zu)) return false;", boolean(one.coded),
                           ItemHead::words, (last.words.size() - ItemHead::words) / 2)};
        return;
      }
    }
    emitted_.push_back(std::move(one));
  }

  // Writes the heads of the items: what each loads ahead for the next.
  void link() {
    for (size_t i = 0; i < emitted_.size(); ++i) {
      size_t next = i;
      bool wraps = false;
      do {
        wraps = wraps || next + 1 == emitted_.size();
        next = (next + 1) % emitted_.size();
      } while (emitted_[next].is_transparent && next != i);
      const Emitted& to = emitted_[next];
      const int next_stage = to.stage - (wraps ? 1 : 0);
      emitted_[i].words[0] = ItemHead::of(emitted_[i].stage, to.first, next_stage, emitted_[i].settles).word;
      emitted_[i].words[1] = to.first_word;
    }
  }

  // Items with the same text, one after another, become a loop.
  void merge() {
    for (size_t i = 0; i < emitted_.size();) {
      size_t end = i + 1;
      while (end < emitted_.size() && emitted_[end].lines == emitted_[i].lines) ++end;
      const size_t first = words_.size(), width = emitted_[i].words.size();
      for (size_t one = i; one < end; ++one)
        words_.insert(words_.end(), emitted_[one].words.begin(), emitted_[one].words.end());
      if (end == i + 1) {
        body_ += text("    if (const uint32_t* const q = p + %zu; w.begin_item(q)) {\n", first);
      } else {
        body_ += text("    for (const uint32_t* q = p + %zu; q != p + %zu; q += %zu) {\n", first, words_.size(), width);
        body_ += "      if (!w.begin_item(q)) continue;\n";
      }
      for (const std::string& line : emitted_[i].lines) body_ += "      " + line + "\n";
      body_ += "    }\n";
      ++loops_;
      i = end;
    }
  }

  const Program& program_;
  int rank_;
  uint32_t group_;
  const std::vector<Item>& items_;
  Ends ends_;
  std::vector<Emitted> emitted_;
  std::string body_;
  size_t loops_ = 0;
  std::vector<uint32_t> words_;
};

// The programs of all groups as one loop, for plans whose programs repeat the same kinds of items many times: the code
// of each kind exists once, and the table says of which kind an item is.
class SharedLoop {
 public:
  // The words of a group: each item preceded by the number of its kind.
  std::vector<uint32_t> add(const std::vector<Emitted>& items) {
    std::vector<uint32_t> words;
    for (const Emitted& item : items) {
      std::string code;
      for (const std::string& line : item.lines) code += "          " + line + "\n";
      const auto [found, is_new] = kinds_.try_emplace({code, item.words.size()}, kinds_.size());
      words.push_back(static_cast<uint32_t>(found->second));
      words.insert(words.end(), item.words.begin(), item.words.end());
    }
    words.push_back(~0u);
    return words;
  }
  size_t kinds() const { return kinds_.size(); }
  std::string body() const {
    std::vector<std::string> cases(kinds_.size());
    for (const auto& [kind, number] : kinds_)
      cases[number] = text("        case %zu:\n          p += %zu;\n          if (!w.begin_item(q)) break;\n", number,
                           kind.second) +
                      kind.first + "          break;\n";
    std::string out = "    for (const uint32_t* p = items; *p != ~0u;) {\n      const uint32_t* const q = p + 1;\n";
    out += "      switch (*p++) {\n";
    for (const std::string& one : cases) out += one;
    return out + "      }\n    }\n";
  }

 private:
  std::map<std::pair<std::string, size_t>, size_t> kinds_;  // number by code and words
};

// Programs with more loops than this, of all groups together, share one if that makes the code much shorter.
constexpr size_t max_loops = 8;

// Upper bounds of the sizes in plan_kernel.cuh, which asserts them.
constexpr size_t max_scratch_bytes = 512, sender_bytes = 48, receiver_bytes = 40, queue_bytes = 8 * 16 + 8;
size_t shared_bytes(uint32_t workers, uint32_t block_bytes, size_t senders, size_t receivers) {
  const size_t warp = 3 * size_t{block_bytes} + 128 + max_scratch_bytes;
  const size_t ends = (senders + 1) * sender_bytes + (receivers + 1) * receiver_bytes + 8;
  return workers * (warp + ends + queue_bytes) + 256;
}

}  // namespace

void generate_pieces(const Program& program, PieceProgram pieces, BlockSource* source) {
  const bool is_coded = program.codec != NCAST_CODEC_RAW, reduces = pieces.reduces;
  const uint32_t block_bytes = program.block_bytes;
  // Kernels that only move raw values treat them as bytes.
  const ncast_dtype dtype = is_coded || reduces ? program.dtype : NCAST_INT8;
  if (reduces) {
    source->warps = select::reduce_warps(block_bytes, ncast_dtype_bytes(dtype));
    source->shared_bytes =
        shared_bytes(select::reduce_rings(source->warps), block_bytes, channel::max_gpu_ranks, channel::max_gpu_ranks);
  } else {
    const select::MoveWarps warps = select::move_warps(block_bytes);
    source->warps = warps.all();
    source->shared_bytes = shared_bytes(warps.senders + warps.receivers, block_bytes, 0, 0);
  }
  source->pieces = std::move(pieces);

  std::string& out = source->text;
  if (is_coded) out += window_include;
  out += raw_include;
  out += reduces ? reduce_include : move_include;
  out += "\nnamespace narrowcast::executor::cuda::generated {\n\n";
  out +=
      text("using Codec = codec::%s<%s>;\n", is_coded ? "window::SharedCodec" : "raw::Codec", name_of(dtype).c_str());
  out += text("static_assert(sizeof(%s<Codec>) <= %zu);\n\n", reduces ? "ReduceMemory" : "MoveMemory",
              source->shared_bytes);
  const std::string bounds = reduces ? text("__launch_bounds__(%u, 1)", source->warps * 32)
                                     : text("__maxnreg__(%u)", select::most_move_registers(block_bytes));
  out +=
      "extern \"C\" __global__ void " + bounds + " " + block_kernel + "(const __grid_constant__ BlockCall call) {\n  ";
  out +=
      reduces ? text("reduce_pieces_by_cta<Codec, %s>(call)", name_of(program.op)) : "move_pieces<Codec, false>(call)";
  out += ";\n}\n\n}  // namespace narrowcast::executor::cuda::generated\n";
}

ncast_status generate_blocks(const Program& program, BlockSource* source) {
  std::vector<std::vector<GroupEmitter>> emitters;
  size_t senders = 1, receivers = 1;
  for (int rank = 0; rank < program.rank_count(); ++rank) {
    std::vector<GroupEmitter>& of_rank = emitters.emplace_back();
    for (uint32_t group = 0; group < program.ranks[static_cast<size_t>(rank)].groups.size(); ++group) {
      GroupEmitter& emitter = of_rank.emplace_back(program, rank, group);
      emitter.find_ends();
      senders = std::max(senders, emitter.ends().sending.size());
      receivers = std::max(receivers, emitter.ends().receiving.size());
    }
  }
  if (senders > 31 || receivers > 31)
    return fail(NCAST_UNSUPPORTED,
                "a group of the plan uses %zu rings, but a warp of a generated kernel has at most 31",
                std::max(senders, receivers));

  std::map<std::string, size_t> programs;  // number by body
  size_t loops = 0;
  SharedLoop shared;
  for (std::vector<GroupEmitter>& of_rank : emitters) {
    for (GroupEmitter& emitter : of_rank) {
      emitter.emit();
      shared.add(emitter.items());
      if (programs.try_emplace(emitter.body(), programs.size()).second) loops += emitter.loops();
    }
  }
  const bool shares_loop = loops > max_loops && loops > 2 * shared.kinds();
  if (shares_loop) programs = {{shared.body(), 0}};

  std::string group_table, counts;
  std::vector<uint32_t> words;
  const uint32_t groups = program.groups();
  for (std::vector<GroupEmitter>& of_rank : emitters) {
    counts += text("%zu, ", of_rank.size());
    for (uint32_t group = 0; group < groups; ++group) {
      if (group >= of_rank.size()) {
        group_table += "{0, 0}, ";
        continue;
      }
      GroupEmitter& emitter = of_rank[group];
      group_table += text("{%zu, %zu}, ", shares_loop ? size_t{0} : programs.at(emitter.body()), words.size());
      const auto add_ends = [&](const std::vector<std::pair<int, uint32_t>>& ends, size_t count) {
        for (size_t i = 0; i < count; ++i)
          words.push_back(i < ends.size() ? EndRef::of(ends[i].first, ends[i].second).word : EndRef::none);
      };
      add_ends(emitter.ends().sending, senders);
      add_ends(emitter.ends().receiving, receivers);
      std::ranges::copy(shares_loop ? shared.add(emitter.items()) : emitter.words(), std::back_inserter(words));
    }
    group_table += "\n  ";
  }
  std::vector<std::string> bodies(programs.size());
  for (const auto& [body, number] : programs) bodies[number] = body;

  // Without sums a thread needs fewer registers, so a CTA can have more warps; see select/block_shape.h.
  const uint32_t most_workers =
      program.reduces
          ? select::reduce_rings(select::reduce_warps(program.block_bytes, ncast_dtype_bytes(program.dtype)))
          : select::move_warps(program.block_bytes).senders + select::move_warps(program.block_bytes).receivers;
  source->workers = most_workers;
  while (source->workers > 1 &&
         shared_bytes(source->workers, program.block_bytes, senders, receivers) > select::most_shared_bytes)
    --source->workers;
  source->shared_bytes = shared_bytes(source->workers, program.block_bytes, senders, receivers);
  source->warps = source->workers + 1;

  const bool is_coded = program.codec != NCAST_CODEC_RAW;
  std::string& out = source->text;
  out = text("// Generated by Narrowcast (generator %u) from a plan of %s for %d ranks.\n", generator_version,
             operation::name_of(program.operation), program.rank_count());
  if (is_coded) out += window_include;
  out += raw_include;
  out += program_include;
  out += "\nnamespace narrowcast::executor::cuda::generated {\nnamespace {\n\n";
  out += "struct Settings {\n";
  out += text("  using Codec = codec::%s<%s>;\n", is_coded ? "window::SharedCodec" : "raw::Codec",
              name_of(program.dtype).c_str());
  out += text("  static constexpr ncast_dtype dtype = %s;\n", name_of(program.dtype).c_str());
  out += text("  static constexpr ncast_redop op = %s;\n", name_of(program.op));
  out += text("  using Ends = WarpEnds<%zu, %zu>;\n", senders, receivers);
  out += text("  static constexpr uint32_t rings = %u, workers = %u, scratch_copies = %u;\n", program.rings,
              source->workers, program.scratch_copies);
  const bool counts_calls =
      program.accesses_peers || program.scratch_copies != 1 ||
      std::ranges::any_of(program.ranks, [](const RankProgram& rank) { return rank.points != 0; });
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  out += text("  static constexpr bool has_one_chunk = %s, announces_buffers = %s, counts_calls = %s;\n",
              boolean(program.chunks == 1), boolean(program.accesses_peer_buffers), boolean(counts_calls));
  out += "};\nusing Warp = PlanWarp<Settings>;\n";
  out += text("static_assert(sizeof(PlanMemory<Settings>) <= %zu);\n\n", source->shared_bytes);

  // Tables that do not fit into constant memory are in global memory.
  const char* const space = words.size() * sizeof(uint32_t) > (size_t{32} << 10) ? "__device__ const" : "__constant__";
  out += text("%s uint32_t table[] = {", space);
  for (size_t i = 0; i < words.size(); ++i) out += text("%s0x%x,", i % 12 == 0 ? "\n  " : " ", words[i]);
  out += "\n};\nstruct GroupOf {\n  uint32_t program, table;\n};\n";
  out += text("%s GroupOf groups[] = {\n  ", space) + group_table + "};\n";
  out += "__constant__ uint32_t group_counts[] = {" + counts + "};\n\n";
  for (size_t i = 0; i < bodies.size(); ++i) {
    out += text("__device__ __forceinline__ bool program_%zu(Warp& w, const uint32_t* %s) {\n", i,
                shares_loop ? "items" : "p");
    out += text("  for (w.begin(); w.has_turn(%d); w.next_turn()) {\n", program.stages);
    out += bodies[i];
    out += "  }\n  return true;\n}\n";
  }
  out += "\n}  // namespace\n\n";
  if (const char* regs = getenv("NC_MAXNREG"))
    out += text("extern \"C\" __global__ void __maxnreg__(%s) %s(const __grid_constant__ PlanCall call) {\n", regs,
                block_kernel);
  else
    out += text("extern \"C\" __global__ void __launch_bounds__(%u, 1) %s(const __grid_constant__ PlanCall call) {\n",
                source->warps * 32, block_kernel);
  out += text("  const GroupOf* const of_rank = groups + call.peers.rank * %u;\n", groups);
  out += text("  const auto ends = [&](uint32_t group) { return table + of_rank[group].table; };\n");
  out += "  run_plan<Settings>(call, group_counts[call.peers.rank], ends, [&](Warp& w, uint32_t group) {\n";
  out += text("    const uint32_t* const p = ends(group) + %zu;\n", senders + receivers);
  if (bodies.size() == 1) {
    out += "    return program_0(w, p);\n";
  } else {
    out += "    switch (of_rank[group].program) {\n";
    for (size_t i = 0; i + 1 < bodies.size(); ++i) out += text("      case %zu: return program_%zu(w, p);\n", i, i);
    out += text("      default: return program_%zu(w, p);\n    }\n", bodies.size() - 1);
  }
  out += "  });\n}\n\n}  // namespace narrowcast::executor::cuda::generated\n";
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda::generated
