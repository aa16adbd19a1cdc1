// Encodes rows, one warp for each: what all coders have in common.
#pragma once

#include <cstdint>

#include "../../../device/warp.cuh"
#include "../../rows/format.h"
#include "encode_arguments.h"

namespace narrowcast::store::cuda {

inline constexpr uint32_t encode_warps = 8;  // of a CTA

__device__ inline uint32_t lanes_below() { return (1u << device::lane_id()) - 1; }

// Stores the zero map, and the elements that are present end to end. Returns their number. The whole warp calls it.
template <typename Elem>
__device__ uint32_t split_zeros(const Elem* row, uint32_t elems, uint32_t* map, Elem* present) {
  const uint32_t lane = device::lane_id();
  uint32_t count = 0;
  for (uint32_t first = 0; first < elems; first += 32) {
    const Elem elem = first + lane < elems ? row[first + lane] : Elem{0};
    const uint32_t bits = __ballot_sync(device::all_lanes, elem != 0);
    if (elem != 0) present[count + __popc(bits & lanes_below())] = elem;
    if (lane == 0) map[first / 32] = bits;
    count += __popc(bits);
  }
  __syncwarp();
  return count;
}

// Whether all elements have the constant bits of the trim. The whole warp calls it.
template <typename Elem>
__device__ bool follow_trim(const EncodeFormat& format, const Elem* elems, uint32_t count) {
  const auto constant = static_cast<Elem>(format.constant), values = static_cast<Elem>(format.values);
  bool differs = false;
  if (constant != 0)
    for (uint32_t i = device::lane_id(); i < count; i += 32)
      differs = differs || static_cast<Elem>(elems[i] & constant) != values;
  return !__any_sync(device::all_lanes, differs);
}

// Stores a row that is not encoded, and returns the bytes of its payload.
__device__ inline uint32_t store_raw(const char* row, uint32_t row_bytes, uint32_t* payload) {
  const uint32_t words = (row_bytes + 3) / 4;
  for (uint32_t word = device::lane_id(); word <= words; word += 32) {
    uint32_t bits = word == 0 ? raw_bit : 0;
    for (uint32_t i = 0; i < 4 && word != 0 && 4 * (word - 1) + i < row_bytes; ++i)
      bits |= uint32_t{static_cast<uint8_t>(row[4 * (word - 1) + i])} << 8 * i;
    payload[word] = bits;
  }
  return header_bytes + 4 * words;
}

// Row: a coder, with
//   Elem             what rows are aligned to
//   Shared           memory of a warp
//   encode(format, row, payload, present, map, shared)
//                    returns the bytes of the payload, or 0 if the row has to be stored raw. The whole warp calls it.
template <typename Row>
__device__ void encode_rows(const EncodeArguments& arguments, char* shared_memory) {
  using Elem = typename Row::Elem;
  auto& shared = reinterpret_cast<typename Row::Shared*>(shared_memory)[threadIdx.x / 32];
  const uint32_t warps = blockDim.x / 32, warp = blockIdx.x * warps + threadIdx.x / 32;
  char* const scratch = arguments.scratch + uint64_t{warp} * arguments.scratch_pitch;
  for (uint32_t number = warp; number < arguments.count; number += gridDim.x * warps) {
    const char* const row = arguments.rows + number * arguments.row_stride;
    auto* const payload = reinterpret_cast<uint32_t*>(arguments.payloads + uint64_t{number} * arguments.payload_pitch);
    uint32_t bytes =
        Row::encode(arguments.format, reinterpret_cast<const Elem*>(row), payload, reinterpret_cast<Elem*>(scratch),
                    reinterpret_cast<uint32_t*>(scratch + arguments.map_offset), shared);
    if (bytes == 0) bytes = store_raw(row, arguments.format.row_bytes, payload);
    if (device::lane_id() == 0) arguments.lengths[number] = bytes;
    __syncwarp();
  }
}

}  // namespace narrowcast::store::cuda
