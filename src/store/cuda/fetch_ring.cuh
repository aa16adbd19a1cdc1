// Fetches slots of host memory into the shared memory of a team, several steps ahead of their use. A step has as many
// rows as a warp has tiles. A team takes batches of several steps: each lane finds the slot of one of their rows.
#pragma once

#include <cstdint>

#include "../../device/ptx/async_copy.cuh"
#include "../../device/warp.cuh"
#include "gather_arguments.h"
#include "team.cuh"

namespace narrowcast::store::cuda {

inline constexpr uint32_t line_bytes = 128, line_parts = line_bytes / 16;

inline constexpr uint32_t skew_shift = 24;

// What is known of a row before its payload is there.
struct FetchedRow {
  uint64_t number;   // of the row in the table
  uint32_t output;   // position in the output; no_row if there is none in this tile
  uint32_t payload;  // bytes | skew << skew_shift; no bytes: the index is out of range

  __device__ uint32_t bytes() const { return payload & ((1u << skew_shift) - 1); }  // at most
  // The payload's distance from the multiple of 16 before it, where the fetch began.
  __device__ uint32_t skew() const { return payload >> skew_shift; }
};
inline constexpr uint32_t no_row = ~0u;

// The payload of a row in host memory.
struct Payload {
  uint64_t address;
  uint32_t bytes;  // at most; 0: none
};

template <typename Team>
class FetchRing {
 public:
  // memory: shared memory of the team, 16-byte aligned. Teams of several warps have one row in a step.
  __device__ FetchRing(const GatherArguments& arguments, uint64_t row_count, bool has_redirects, char* memory,
                       const Team& team, int lane)
      : team_(team),
        places_(arguments.places),
        selection_(arguments.selection),
        shape_(arguments.shape),
        row_count_(row_count),
        has_redirects_(has_redirects),
        memory_(memory),
        lane_(static_cast<uint32_t>(lane)),
        count_(count_of(arguments.selection)),
        rows_(Team::is_alone ? arguments.shape.rows : 1) {
    constexpr uint32_t groups = 32 / line_parts;
    rows_at_a_time_ = min(rows_, groups);
    const uint32_t shift = device::highest_bit(rows_at_a_time_), group = team.warp() * groups + lane_ / line_parts;
    lines_at_a_time_ = (team.warps() * groups) >> shift;
    group_row_ = group & (rows_at_a_time_ - 1);
    group_offset_ = (group >> shift) * line_bytes + lane_ % line_parts * 16;
    // Large batches cost less, but each team should have several.
    const uint64_t teams = uint64_t{gridDim.x} * (blockDim.x / 32 / team.warps());
    batch_rows_ = 32;
    while (batch_rows_ > rows_ && 4 * teams * batch_rows_ > count_) batch_rows_ /= 2;
    batches_apart_ = teams * batch_rows_;
    // The teams of a CTA take batches that follow each other: an SM reads neighbouring pages at the same time, which
    // shares translations, and its L1 cache has the rows that are asked for often.
    first_ = (uint64_t{blockIdx.x} * (blockDim.x / 32 / team.warps()) + team.number()) * batch_rows_;
    look_at_ = first_ + lane_;
    // The positions are known three batches, the indices two, and the places one before the fetch begins, so that none
    // of these loads is waited for.
    look_ahead();
    look_ahead();
    look_ahead();
    for (uint32_t stage = 0; stage < shape_.stages; ++stage) fetch(stage);
  }

  __device__ bool has_step() const { return first_ < count_; }
  // Waits for the current step.
  __device__ void wait() const {
    device::wait_for_all_but(shape_.stages - 1);
    team_.sync();
  }
  // The current step's row number `row`.
  __device__ const FetchedRow& row(uint32_t row) const { return records(stage_)[row]; }
  __device__ const char* slot(uint32_t row) const {
    return slots(stage_) + row * shape_.slot_area + records(stage_)[row].skew();
  }
  // Coder raw: the header word of a row.
  __device__ uint32_t header(uint32_t row) const { return has_redirects_ ? headers(stage_)[row] : 0; }
  // Ends the current step, when all lanes have read what they need, and starts another fetch.
  __device__ void advance() {
    team_.sync();
    fetch(stage_);
    first_ += rows_;
    in_batch_ += rows_;
    if (in_batch_ == batch_rows_) {
      in_batch_ = 0;
      first_ += batches_apart_ - batch_rows_;
    }
    stage_ = stage_ + 1 == shape_.stages ? 0 : stage_ + 1;
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
  static_assert(max_payload_bytes < 1u << skew_shift);

 private:
  __device__ char* slots(uint32_t stage) const { return memory_ + stage * (rows_ * shape_.slot_area); }
  __device__ FetchedRow* records(uint32_t stage) const {
    return reinterpret_cast<FetchedRow*>(slots(shape_.stages)) + stage * rows_;
  }
  __device__ uint32_t* headers(uint32_t stage) const {
    return reinterpret_cast<uint32_t*>(records(shape_.stages)) + stage * rows_;
  }

  // Moves what is known of later batches one batch on. Lane i has row i of each.
  __device__ void look_ahead() {
    // From the index to the place.
    next_output_ = index_output_;
    next_number_ = index_;
    next_payload_ = {0, 0};
    if (index_output_ != no_row && index_ < row_count_) next_payload_ = payload_of(index_);
    // From the position to the index.
    index_output_ = position_;
    if (position_ != no_row) index_ = index_at(position_);
    // The next position.
    position_ = no_row;
    if (lane_ < batch_rows_ && look_at_ < count_)
      position_ = selection_.order != nullptr ? selection_.order[look_at_] : static_cast<uint32_t>(look_at_);
    look_at_ += batches_apart_;
  }

  __device__ static uint64_t count_of(const Selection& selection) {
    if (selection.device_count == nullptr) return selection.count;
    return min(selection.count, uint64_t{*selection.device_count});
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
    const uint32_t bytes = min(next_payload_.bytes, shape_.slot_bytes);
    if (own < rows_ && team_.warp() == 0) {
      records(stage)[own] = {next_number_, next_output_,
                             next_payload_.bytes | static_cast<uint32_t>(next_payload_.address % 16) << skew_shift};
      if (has_redirects_ && bytes != 0)
        device::start_copy_of_4_bytes(&headers(stage)[own], places_.headers + next_number_);
    }
    // Groups of lanes copy whole lines in 16-byte parts, so that no line is requested twice.
    for (uint32_t first = 0; first < rows_; first += rows_at_a_time_) {
      const uint32_t row = first + group_row_;
      const uint64_t address = shuffle(next_payload_.address, fetched_ + row), begin = address & ~uint64_t{15};
      const uint32_t size = __shfl_sync(device::all_lanes, bytes, static_cast<int>(fetched_ + row));
      const uint32_t end = size != 0 ? size + static_cast<uint32_t>(address % 16) : 0;
      char* const to = slots(stage) + row * shape_.slot_area;
      // Wraps around for parts before the row.
      uint32_t offset = group_offset_ - static_cast<uint32_t>(begin % line_bytes);
      for (uint32_t line = 0; line < shape_.slot_lines;
           line += lines_at_a_time_, offset += lines_at_a_time_ * line_bytes)
        if (offset < end)
          device::start_copy_of_16_bytes_by_line(to + offset, reinterpret_cast<const void*>(begin + offset));
    }
    device::commit_copies();
    fetched_ += rows_;
    if (fetched_ == batch_rows_) {
      fetched_ = 0;
      look_ahead();
    }
  }
  __device__ static uint64_t shuffle(uint64_t value, uint32_t from) {
    return static_cast<uint64_t>(
        __shfl_sync(device::all_lanes, static_cast<unsigned long long>(value), static_cast<int>(from)));
  }

  Team team_;
  const RowPlaces& places_;
  const Selection& selection_;
  const GatherShape& shape_;
  uint64_t row_count_;
  bool has_redirects_;
  char* memory_;
  uint32_t lane_;
  uint64_t count_;
  uint32_t rows_;        // of a step
  uint32_t batch_rows_;  // a multiple of it
  // How lanes copy lines: rows and lines of each at a time, and where this lane begins.
  uint32_t rows_at_a_time_, lines_at_a_time_, group_row_, group_offset_;
  uint64_t batches_apart_;  // rows from one batch of the team to the next
  uint64_t first_;          // row of the current step
  uint64_t look_at_;        // this lane's row in the next batch to look at
  // Rows of the current batch, and of the one that is fetched, that come before the current and the next step.
  uint32_t in_batch_ = 0, fetched_ = 0, stage_ = 0;
  uint32_t position_ = no_row, index_output_ = no_row, next_output_ = no_row;
  uint64_t index_ = 0, next_number_ = 0;
  Payload next_payload_ = {0, 0};
};

}  // namespace narrowcast::store::cuda
