// Fetches slots of host memory into the shared memory of a team, several steps ahead of their use. A step has as many
// rows as a warp has tiles. A team takes batches of several steps: each lane finds the slot of one of their rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/ptx/async_copy.cuh"
#include "../../device/ptx/bulk_load.cuh"
#include "../../device/warp.cuh"
#include "gather_arguments.h"
#include "row_batches.cuh"
#include "team.cuh"

namespace narrowcast::store::cuda {

inline constexpr uint32_t skew_shift = 24, cached_bit = 1u << (skew_shift - 1);

// What is known of a row before its payload is there. Aligned so that it is loaded at once.
struct alignas(8) FetchedRow {
  uint32_t output;   // position in the output; no_row if there is none in this tile
  uint32_t payload;  // bytes | cached_bit | skew << skew_shift; no bytes: the index is out of range, or there is no row

  __device__ uint32_t bytes() const { return payload & (cached_bit - 1); }  // at most
  __device__ bool is_cached() const { return (payload & cached_bit) != 0; }
  // The payload's distance from the multiple of 16 before it, where the fetch began.
  __device__ uint32_t skew() const { return payload >> skew_shift; }
};

// The payload of a row.
struct Payload {
  uint64_t address;
  uint32_t bytes;  // at most; 0: none
};

// has_cache: rows may be in a cache. The selection has entries, and slots are not copies.
template <typename Team, bool has_cache>
class FetchRing {
  // Of a request to host memory.
  static constexpr uint32_t request_bytes = Team::has_lane_rows ? 64 : line_bytes, request_parts = request_bytes / 16;
  // With a cache, rows that are in it should be read beside others.
  static constexpr bool has_shared_batches = Team::has_lane_rows && !has_cache;
  using Batches = std::conditional_t<has_shared_batches, SharedBatches, OwnBatches<Team>>;

 public:
  // taken: shared memory of the CTA, 0. memory: of the team, 16-byte aligned. Teams of several warps have one row in a
  // step. Counts rows and their bytes.
  __device__ FetchRing(const GatherArguments& arguments, uint64_t row_count, bool has_redirects, uint32_t* taken,
                       char* memory, const Team& team, int lane)
      : team_(team),
        places_(arguments.places),
        selection_(arguments.selection),
        shape_(arguments.shape),
        counters_(*arguments.counters),
        row_count_(row_count),
        has_redirects_(has_redirects),
        memory_(memory),
        lane_(static_cast<uint32_t>(lane)),
        rows_(Team::tile_lanes != 0 ? 32 / Team::tile_lanes : arguments.shape.rows),
        batches_(count_of(arguments.selection), rows_, is_bulk(), team, lane_, taken) {
    constexpr uint32_t groups = 32 / request_parts;
    // Opaque, so that they are not computed again in each step.
    rows_at_a_time_ = device::opaque(min(rows_, groups));
    const uint32_t shift = device::highest_bit(rows_at_a_time_), group = team.warp() * groups + lane_ / request_parts;
    lines_at_a_time_ = device::opaque((team.warps() * groups) >> shift);
    group_row_ = device::opaque(group & (rows_at_a_time_ - 1));
    group_offset_ = device::opaque((group >> shift) * request_bytes + lane_ % request_parts * 16);
    if (is_bulk()) {
      if (lane_ == 0 && team.warp() == 0)
        for (uint32_t stage = 0; stage < shape_.stages; ++stage)
          device::set_up_bulk_loads(load_barrier(stage * shape_.stage_bytes));
      team.sync();
    }
    // The entries or indices are known two batches, and the places one before the fetch begins, so that none of these
    // loads is waited for.
    look_ahead();
    look_ahead();
    for (uint32_t stage = 0; stage < shape_.stages; ++stage) fetch(stage * shape_.stage_bytes);
  }

  __device__ bool has_step() const { return batches_.has_step(); }
  // Waits for the current step.
  __device__ void wait() const {
    if (is_bulk())
      device::wait_for_bulk_load(load_barrier(at()), at_ & parity_bit);
    else
      device::wait_for_all_but(shape_.stages - 1);
    team_.sync();
  }
  // The current step's row number `row`.
  __device__ FetchedRow row(uint32_t row) const { return records(at())[row]; }
  // Where its slot is, which it may not fill. fetched: the row.
  __device__ char* slot(uint32_t row, const FetchedRow& fetched) const {
    return memory_ + (at() + row * shape_.slot_area + fetched.skew());
  }
  // 16 bytes of a slot without skew.
  __device__ char* slot_part(uint32_t row, uint32_t part) const {
    return memory_ + (at() + row * shape_.slot_area + part * 16);
  }
  // The number in the table of the row at `output`.
  __device__ uint64_t number_of(uint32_t output) const { return index_at(output); }
  __device__ static bool is_cached(const FetchedRow& row) { return has_cache && row.is_cached(); }
  // The way of the cache that the payload of a row is copied to, or -1.
  __device__ int32_t fill_way(uint32_t row) const { return fill_ways(at())[row]; }
  // Coder raw: the header word of a row.
  __device__ uint32_t header(uint32_t row) const { return has_redirects_ ? headers(at())[row] : 0; }
  // Ends the current step, of which all threads of the team have read what they need, and starts another fetch.
  __device__ void advance() {
    fetch(at());
    at_ += shape_.stage_bytes;
    // The last stage is followed by the first one, whose loads have the other parity. Opaque, so that addresses are
    // derived from this one value.
    at_ = device::opaque(at() == shape_.stages * shape_.stage_bytes ? ~at_ & parity_bit : at_);
    batches_.end_step();
  }

  // The payload of an existing row, without redirects. Any lane may call it.
  __device__ Payload payload_of(uint64_t number) const {
    if (places_.offsets == nullptr)
      return {reinterpret_cast<uintptr_t>(places_.slots) + number * places_.stride, shape_.slot_bytes};
    const uint64_t begin = places_.offsets[number], end = places_.offsets[number + 1];
    const uint64_t bytes = end > begin ? (end - begin) * places_.unit_bytes : 0;
    return {reinterpret_cast<uintptr_t>(places_.slots) + begin * places_.unit_bytes,
            bytes < max_payload_bytes ? static_cast<uint32_t>(bytes) : max_payload_bytes};
  }

  static constexpr uint32_t max_payload_bytes = 1 << 20;
  static_assert(max_payload_bytes < cached_bit);

 private:
  static constexpr uint32_t parity_bit = 1;
  __device__ uint32_t at() const { return at_ & ~parity_bit; }
  // stage: where it begins in the memory. It consists of the slots of its rows, their records and header words, and, if
  // the shape has a cache, their ways.
  __device__ FetchedRow* records(uint32_t stage) const {
    return reinterpret_cast<FetchedRow*>(memory_ + (stage + shape_.records_at));
  }
  __device__ uint32_t* headers(uint32_t stage) const { return reinterpret_cast<uint32_t*>(records(stage) + rows_); }
  __device__ int32_t* fill_ways(uint32_t stage) const { return reinterpret_cast<int32_t*>(headers(stage) + rows_); }
  // Whole steps are loaded at once if their slots lie in device memory as they do in a stage.
  __device__ bool is_bulk() const {
    return !Team::has_lane_rows && !has_cache && device::has_bulk_loads && places_.is_staged != 0;
  }
  __device__ uint64_t* load_barrier(uint32_t stage) const {
    return reinterpret_cast<uint64_t*>(memory_ + (stage + shape_.stage_bytes - sizeof(uint64_t)));
  }

  // Moves what is known of later batches one batch on. Lane i has row i of each.
  __device__ void look_ahead() {
    // From the entry or index to the place.
    const bool has_entries = has_cache || selection_.entries != nullptr;
    const bool exists = (has_cache ? entry_position(index_) : position_) != no_row;
    next_output_ = has_cache || (exists && has_entries) ? entry_position(index_) : position_;
    next_number_ = has_entries ? entry_number(index_) : index_;
    Payload payload = {0, 0};
    uint32_t cached = 0;
    if (exists && next_number_ < row_count_) {
      payload = payload_of(next_number_);
    } else if (has_cache && exists) {
      payload = cached_payload(static_cast<uint32_t>(next_number_));
      if (payload.bytes != 0) cached = cached_bit;
    }
    const auto skew = static_cast<uint32_t>(payload.address % 16);
    const uint32_t bytes = min(payload.bytes, shape_.slot_bytes);
    next_begin_ = payload.address - skew;
    next_payload_ = payload.bytes | cached | skew << skew_shift;
    next_end_ = bytes != 0 ? bytes + skew : 0;
    count(bytes, cached == 0);
    // The next entry or index.
    position_ = no_row;
    if constexpr (has_cache) index_ = no_entry;
    if (batches_.has_row()) {
      position_ = batches_.position();
      index_ = has_entries ? selection_.entries[position_] : index_at(position_);
    }
    batches_.take();
  }
  // A row in the cache.
  __device__ Payload cached_payload(uint32_t number) const {
    const CachedRows& cached = selection_.cached;
    const uint32_t way = number - cached_row;
    if (way >= cached.ways) return {0, 0};
    return {reinterpret_cast<uintptr_t>(cached.slots) + uint64_t{way} * cached.slot_bytes, cached.slot_bytes};
  }
  // bytes: of the lane's row, or 0 if there is none. is_fetched: from host memory.
  __device__ void count(uint32_t bytes, bool is_fetched) const {
    const uint32_t rows = __popc(__ballot_sync(device::all_lanes, bytes != 0));
    bytes = __reduce_add_sync(device::all_lanes, is_fetched ? bytes : 0);
    if (lane_ != 0 || team_.warp() != 0 || rows == 0) return;
    atomicAdd(&counters_.rows, static_cast<unsigned long long>(rows));
    atomicAdd(&counters_.fetched_bytes, static_cast<unsigned long long>(bytes));
  }
  __device__ static uint32_t count_of(const Selection& selection) {
    const auto count = static_cast<uint32_t>(selection.count);
    return selection.device_count == nullptr ? count : min(count, *selection.device_count);
  }

  // Out of range for an index that is negative.
  __device__ uint64_t index_at(uint32_t position) const {
    if (selection_.indices == nullptr)
      return selection_.first + static_cast<uint64_t>(selection_.step * static_cast<int64_t>(position));
    if (selection_.index_bytes == 8) return static_cast<const uint64_t*>(selection_.indices)[position];
    return static_cast<uint64_t>(int64_t{static_cast<const int32_t*>(selection_.indices)[position]});
  }

  // Starts the fetch of the next step into `stage`. Empty steps count, too, so that wait() need not count.
  __device__ void fetch(uint32_t stage) {
    const uint32_t own = lane_ - fetched_;  // of this lane's row in the step, if it has one
    if (own < rows_ && team_.warp() == 0) {
      records(stage)[own] = {next_output_, next_payload_};
      if constexpr (has_cache) {
        if (next_end_ != 0 && (next_payload_ & cached_bit) == 0)
          device::start_copy_of_4_bytes(&fill_ways(stage)[own], selection_.cached.fill_ways + next_output_);
        else
          fill_ways(stage)[own] = -1;
      }
      if (has_redirects_ && next_end_ != 0) {
        // Rows that have moved are not in the cache.
        if ((next_payload_ & cached_bit) != 0)
          headers(stage)[own] = 0;
        else
          device::start_copy_of_4_bytes(&headers(stage)[own], places_.headers + next_number_);
      }
    }
    if (is_bulk()) {
      const uint32_t rows = __popc(__ballot_sync(device::all_lanes, own < rows_ && next_end_ != 0));
      if (own == 0 && team_.warp() == 0)
        device::start_bulk_load(load_barrier(stage), memory_ + stage, reinterpret_cast<const void*>(next_begin_),
                                rows_ == 1 ? next_end_ : rows * shape_.slot_area);
    } else {
      copy_rows(stage);
    }
    fetched_ += rows_;
    if (fetched_ == batches_.batch_rows()) {
      fetched_ = 0;
      look_ahead();
    }
  }
  // Starts the copies of the next step's rows.
  __device__ void copy_rows(uint32_t stage) const {
    // Groups of lanes copy whole lines in 16-byte parts, so that no line is requested twice.
    for (uint32_t first = 0; first < rows_; first += rows_at_a_time_) {
      const uint32_t row = first + group_row_, from = fetched_ + row;
      const uint64_t begin = shuffle(next_begin_, from);
      const uint32_t end = __shfl_sync(device::all_lanes, next_end_, static_cast<int>(from));
      // Wraps around for parts before the row.
      const uint32_t offset = group_offset_ - static_cast<uint32_t>(begin % request_bytes);
      const uint32_t to = stage + row * shape_.slot_area;
      if constexpr (Team::has_lane_rows)
        copy_parts<1, 0>(memory_ + (to + offset), begin + offset, offset, end);
      else if (lines_at_a_time_ == 1 && shape_.slot_lines <= 2)
        copy_two_lines(to, begin, offset, end);
      else if (lines_at_a_time_ == 4)
        copy_lines<4>(to, begin, offset, end);
      else if (lines_at_a_time_ == 1)
        copy_lines<1>(to, begin, offset, end);
      else
        copy_lines<0>(to, begin, offset, end);
    }
    device::commit_copies();
  }
  // Starts to copy a lane's part of each line of a row that has at most two. offset: of the first part in the row.
  __device__ void copy_two_lines(uint32_t slot, uint64_t from, uint32_t offset, uint32_t end) const {
    copy_parts<2, line_bytes>(memory_ + static_cast<int32_t>(slot + offset), from + signed_offset(offset), offset, end);
  }
  // The same for any row, at_a_time lines apart, or lines_at_a_time_ if it is 0.
  template <uint32_t at_a_time>
  __device__ void copy_lines(uint32_t slot, uint64_t from, uint32_t offset, uint32_t end) const {
    const uint32_t lines = at_a_time != 0 ? at_a_time : lines_at_a_time_;
    constexpr uint32_t unrolled = at_a_time != 0 ? 4 : 1;
    char* to = memory_ + static_cast<int32_t>(slot + offset);
    from += signed_offset(offset);
    for (uint32_t line = 0; line < shape_.slot_lines; line += unrolled * lines) {
      copy_parts<unrolled, at_a_time * line_bytes>(to, from, offset, end);
      offset += unrolled * lines * line_bytes;
      to += unrolled * lines * line_bytes;
      from += unrolled * lines * line_bytes;
    }
  }
  // Starts to copy `count` parts that are `apart` bytes from each other, as far as they lie before the end. Addresses
  // are not computed for each.
  template <uint32_t count, uint32_t apart>
  __device__ static void copy_parts(char* to, uint64_t from, uint32_t offset, uint32_t end) {
#pragma unroll
    for (uint32_t i = 0; i < count; ++i)
      if (offset + i * apart < end)
        device::start_copy_of_16_bytes_by_line(to + i * apart, reinterpret_cast<const void*>(from + i * apart));
  }
  // Of parts before the row, too.
  __device__ static uint64_t signed_offset(uint32_t offset) {
    return static_cast<uint64_t>(int64_t{static_cast<int32_t>(offset)});
  }
  __device__ static uint64_t shuffle(uint64_t value, uint32_t from) {
    return static_cast<uint64_t>(
        __shfl_sync(device::all_lanes, static_cast<unsigned long long>(value), static_cast<int>(from)));
  }

  Team team_;
  const RowPlaces& places_;
  const Selection& selection_;
  const GatherShape& shape_;
  GatherCounters& counters_;
  uint64_t row_count_;
  bool has_redirects_;
  char* memory_;
  uint32_t at_ = 0;  // the current stage, and the parity of its bulk load
  uint32_t lane_;
  uint32_t rows_;  // of a step
  Batches batches_;
  // How lanes copy lines: rows and lines of each at a time, and where this lane begins.
  uint32_t rows_at_a_time_, lines_at_a_time_, group_row_, group_offset_;
  uint32_t fetched_ = 0;  // rows of the batch that is fetched that come before the next step
  // What is known of this lane's row in the batch after that: its place in the selection, and its entry or index.
  uint32_t position_ = no_row, next_output_ = no_row;
  uint64_t index_ = has_cache ? no_entry : 0, next_number_ = 0;
  // Of this lane's row in the batch that is fetched: where the fetch begins, what the record says, and where the fetch
  // ends, from its begin.
  uint64_t next_begin_ = 0;
  uint32_t next_payload_ = 0, next_end_ = 0;
};

}  // namespace narrowcast::store::cuda
