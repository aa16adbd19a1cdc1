// Fetches slots of host memory into the shared memory of a warp, several steps ahead of their use. A step has as many
// rows as the warp has tiles.
#pragma once

#include <cstdint>

#include "../../device/ptx/async_copy.cuh"
#include "../../device/warp.cuh"
#include "gather_arguments.h"

namespace narrowcast::store::cuda {

inline constexpr uint32_t line_bytes = 128;

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

class FetchRing {
 public:
  // memory: shared memory of the warp, 16-byte aligned, bytes() long.
  __device__ FetchRing(const GatherArguments& arguments, uint64_t row_count, bool has_redirects, char* memory, int lane)
      : places_(arguments.places),
        selection_(arguments.selection),
        shape_(arguments.shape),
        row_count_(row_count),
        has_redirects_(has_redirects),
        memory_(memory),
        lane_(lane),
        rows_(32 / arguments.shape.tile_lanes),
        count_(count_of(arguments.selection)),
        steps_((count_ + rows_ - 1) / rows_) {
    const uint64_t warp = static_cast<uint64_t>(device::warp_id()) * gridDim.x + blockIdx.x;
    steps_apart_ = gridDim.x * (blockDim.x / 32);
    step_ = look_at_ = warp;
    // The positions are known three steps, the indices two steps, and the places one step before the fetch begins, so
    // that none of these loads is waited for.
    look_ahead();
    look_ahead();
    look_ahead();
    for (uint32_t stage = 0; stage < shape_.stages; ++stage) fetch(stage);
  }

  __device__ bool has_step() const { return step_ < steps_; }
  // Waits for the current step.
  __device__ void wait() const {
    device::wait_for_all_but(shape_.stages - 1);
    __syncwarp();
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
    __syncwarp();
    fetch(stage_);
    step_ += steps_apart_;
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

  // Moves what is known of later steps one step on. Lane i has row i of each.
  __device__ void look_ahead() {
    const bool has_row = static_cast<uint32_t>(lane_) < rows_;
    // From the index to the place.
    next_output_ = index_output_;
    next_number_ = index_;
    next_payload_ = {0, 0};
    if (index_output_ != no_row && index_ < row_count_) next_payload_ = payload_of(index_);
    // From the position to the index.
    index_output_ = position_;
    if (position_ != no_row) index_ = index_at(position_);
    // The next position.
    const uint64_t at = look_at_ * rows_ + static_cast<uint32_t>(lane_);
    position_ = no_row;
    if (has_row && at < count_)
      position_ = selection_.order != nullptr ? selection_.order[at] : static_cast<uint32_t>(at);
    look_at_ += steps_apart_;
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
    if (static_cast<uint32_t>(lane_) < rows_)
      records(stage)[lane_] = {next_number_, next_output_,
                               next_payload_.bytes | static_cast<uint32_t>(next_payload_.address % 16) << skew_shift};
    const uint32_t bytes = min(next_payload_.bytes, shape_.slot_bytes);
    if (has_redirects_ && bytes != 0)
      device::start_copy_of_4_bytes(&headers(stage)[lane_], places_.headers + next_number_);
    // Lanes are mapped to 16-byte parts of whole lines, so that no line is requested twice.
    const uint32_t parts = shape_.slot_lines * (line_bytes / 16);
    char* const to = slots(stage);
    for (uint32_t first = 0; first < rows_ * parts; first += 32) {
      const uint32_t part = first + static_cast<uint32_t>(lane_), row = row_of(part / (line_bytes / 16));
      const uint64_t address = shuffle(next_payload_.address, row);
      const uint32_t row_bytes = __shfl_sync(device::all_lanes, bytes, static_cast<int>(row % 32));
      const uint64_t begin = address & ~uint64_t{15};
      const uint64_t from = (address & ~uint64_t{line_bytes - 1}) + (part - row * parts) * 16;
      if (row < rows_ && from >= begin && from < address + row_bytes)
        device::start_copy_of_16_bytes(to + row * shape_.slot_area + (from - begin),
                                       reinterpret_cast<const void*>(from));
    }
    device::commit_copies();
    look_ahead();
  }
  // line / slot_lines
  __device__ uint32_t row_of(uint32_t line) const {
    return static_cast<uint32_t>(uint64_t{line} * shape_.lines_inverse >> 31);
  }
  __device__ static uint64_t shuffle(uint64_t value, uint32_t from) {
    return static_cast<uint64_t>(
        __shfl_sync(device::all_lanes, static_cast<unsigned long long>(value), static_cast<int>(from % 32)));
  }

  const RowPlaces& places_;
  const Selection& selection_;
  const GatherShape& shape_;
  uint64_t row_count_;
  bool has_redirects_;
  char* memory_;
  int lane_;
  uint32_t rows_;  // of a step
  uint64_t count_, steps_, step_, look_at_;
  uint32_t steps_apart_, stage_ = 0;
  uint32_t position_ = no_row, index_output_ = no_row, next_output_ = no_row;
  uint64_t index_ = 0, next_number_ = 0;
  Payload next_payload_ = {0, 0};
};

}  // namespace narrowcast::store::cuda
