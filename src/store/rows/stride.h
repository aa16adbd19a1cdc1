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

// The bytes of a row in the layout `packed`: its payload in units, and its offset.
double packed_row_bytes(std::span<const uint32_t> payload_bytes);

// Whether the automatic layout is `packed`, given the bytes that a row takes in each layout. Slots need no offsets, can
// be changed, and straddle fewer of the lines that a GPU fetches: packed has to store 5% less.
constexpr bool is_worth_packing(double packed, double stride) { return packed < 0.95 * stride; }

}  // namespace narrowcast::store
