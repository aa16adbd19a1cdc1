// The stride of rows that are stored at a fixed distance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace narrowcast::store {

inline constexpr size_t stride_unit_bytes = 32;
inline constexpr size_t packed_unit_bytes = 16;

struct StridePlan {
  size_t stride_bytes;       // a multiple of stride_unit_bytes
  size_t overflow_rows;      // payloads longer than the stride
  double stored_row_bytes;   // average: the stride and the share of the overflow entries
  double fetched_row_bytes;  // average: the 128-byte lines that contain the slot or entry
};

// The stride for payloads of these sizes, which minimises stored + fetched bytes. An overflow entry has `bound` bytes,
// rounded up to stride_unit_bytes. payload_bytes must not be empty.
StridePlan best_stride(std::span<const uint32_t> payload_bytes, size_t bound);

// A row in the layout `packed`.
struct PackedPlan {
  double stored_row_bytes;   // average: the payload in units, and its offset
  double fetched_row_bytes;  // average: the 128-byte lines that contain as much as most payloads need
};

// Payloads of which this percentage is not longer are fetched at once by GPUs.
inline constexpr size_t typical_percent = 99;

// payload_bytes must not be empty.
PackedPlan packed_plan(std::span<const uint32_t> payload_bytes);

// Whether the automatic layout is `packed`. Slots need no offsets, can be changed, and straddle fewer lines: stored +
// fetched bytes of packed have to be 5% less.
constexpr bool is_worth_packing(const PackedPlan& packed, const StridePlan& stride) {
  return packed.stored_row_bytes + packed.fetched_row_bytes <
         0.95 * (stride.stored_row_bytes + stride.fetched_row_bytes);
}

}  // namespace narrowcast::store
