// How the gather kernels divide warps and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/cuda/gather_arguments.h"

namespace narrowcast::store::cuda {

// Warps of a CTA, at most; there is one CTA per SM. Decoders need many registers.
inline constexpr uint32_t max_raw_warps = 24, max_coded_warps = 16;

struct ShapeInput {
  uint32_t elems, row_bytes;
  bool is_staged;           // slots are copies in device memory, and lie in a stage as they do there
  bool is_coded;            // false: slots are rows, without header words
  bool has_only_map;        // coded payloads are a zero map
  uint32_t staged_bytes;    // of a decoded element; unused if rows are not coded
  bool has_teams;           // several warps can decode a row
  bool has_lanes;           // lanes can decode rows of 64 bytes each
  bool has_cache;           // rows may be in a cache, or come into it
  uint32_t slot_bytes;      // to fetch ahead for each row
  uint64_t slot_alignment;  // divides the addresses of all slots; at least 16 if rows are coded
  uint32_t far_bytes;       // the longest payload
};

// The largest power of two that divides a size or an address.
constexpr uint64_t lowest_bit(uint64_t value) { return value & -value; }

// Whether slots that follow each other in the table begin at multiples of 16 bytes, and those of a step lie as they do
// in a stage. stride, unit_bytes: of the table (RowPlaces).
constexpr bool is_dense(const GatherShape& shape, uint64_t stride, uint32_t unit_bytes) {
  if (shape.rows == 1) return (stride != 0 ? stride : unit_bytes) % 16 == 0;
  return stride == shape.slot_area;
}

// The shape for CTAs with `shared_bytes` of shared memory. warps is 0 if not even one warp fits.
GatherShape gather_shape(const ShapeInput& input, size_t shared_bytes);

}  // namespace narrowcast::store::cuda
