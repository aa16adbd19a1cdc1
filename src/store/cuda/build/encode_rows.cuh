// What all coders have in common that encode rows: a warp, or some lanes of it, encodes a row.
#pragma once

#include <cstdint>

#include "../../../device/warp.cuh"
#include "../../rows/format.h"
#include "encode_arguments.h"

namespace narrowcast::store::cuda {

__device__ inline uint32_t lanes_below() { return (1u << device::lane_id()) - 1; }

// The lanes of a warp that encode a row together: all 32, or a smaller power of two, so that the warp encodes several
// rows. The whole warp calls every function, even if some of its rows no longer need it.
template <uint32_t Lanes>
struct RowLanes {
  static constexpr uint32_t count = Lanes;
  static constexpr bool is_warp = Lanes == 32;

  __device__ static uint32_t lane() { return device::lane_id() % Lanes; }
  __device__ static uint32_t sum(uint32_t value) {
    if constexpr (is_warp) {
      return __reduce_add_sync(device::all_lanes, value);
    } else {
#pragma unroll
      for (uint32_t step = 1; step < Lanes; step *= 2) value += of_lane(value, device::lane_id() ^ step);
      return value;
    }
  }
  __device__ static uint32_t largest(uint32_t value) {
    if constexpr (is_warp) {
      return __reduce_max_sync(device::all_lanes, value);
    } else {
#pragma unroll
      for (uint32_t step = 1; step < Lanes; step *= 2) value = max(value, of_lane(value, device::lane_id() ^ step));
      return value;
    }
  }
  __device__ static uint32_t inclusive_scan(uint32_t value) {
    if constexpr (is_warp)
      return device::inclusive_scan(value);
    else
      return device::inclusive_scan(value, Lanes);
  }
  __device__ static uint32_t last(uint32_t value) { return of_lane(value, device::lane_id() | (Lanes - 1)); }
  __device__ static bool any(bool condition) {
    if constexpr (is_warp) {
      return __any_sync(device::all_lanes, condition);
    } else {
      const uint32_t own = ((1u << Lanes) - 1) << device::lane_id() / Lanes * Lanes;
      return (__ballot_sync(device::all_lanes, condition) & own) != 0;
    }
  }

 private:
  __device__ static uint32_t of_lane(uint32_t value, uint32_t lane) {
    return __shfl_sync(device::all_lanes, value, static_cast<int>(lane));
  }
};

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
template <typename Lanes, typename Elem>
__device__ bool follow_trim(const EncodeFormat& format, const Elem* elems, uint32_t count) {
  const auto constant = static_cast<Elem>(format.constant), values = static_cast<Elem>(format.values);
  bool differs = false;
  if (constant != 0)
    for (uint32_t i = Lanes::lane(); i < count; i += Lanes::count)
      differs = differs || static_cast<Elem>(elems[i] & constant) != values;
  return !Lanes::any(differs);
}

// Stores a row that is not encoded, and returns the bytes of its payload.
template <typename Lanes>
__device__ uint32_t store_raw(const char* row, uint32_t row_bytes, uint32_t* payload) {
  const uint32_t words = (row_bytes + 3) / 4;
  for (uint32_t word = Lanes::lane(); word <= words; word += Lanes::count) {
    uint32_t bits = word == 0 ? raw_bit : 0;
    for (uint32_t i = 0; i < 4 && word != 0 && 4 * (word - 1) + i < row_bytes; ++i)
      bits |= uint32_t{static_cast<uint8_t>(row[4 * (word - 1) + i])} << 8 * i;
    payload[word] = bits;
  }
  return header_bytes + 4 * words;
}

// Row: a coder, with
//   Elem             what rows are aligned to
//   Lanes            RowLanes, which encode a row together
//   Shared           memory of these lanes
//   encode(format, row, payload, present, map, shared, stores)
//                    returns the bytes of the payload, or 0 if the row has to be stored raw. The whole warp calls it.
//                    stores: false if nothing is to be stored, only with fewer than 32 lanes
template <typename Row>
__device__ void encode_rows(const EncodeArguments& arguments, char* shared_memory) {
  using Elem = typename Row::Elem;
  using Lanes = typename Row::Lanes;
  constexpr uint32_t rows = 32 / Lanes::count;  // of a warp at a time
  auto& shared = reinterpret_cast<typename Row::Shared*>(shared_memory)[threadIdx.x / Lanes::count];
  const uint32_t warps = blockDim.x / 32, warp = blockIdx.x * warps + threadIdx.x / 32;
  char* const scratch = arguments.scratch + uint64_t{warp} * arguments.scratch_pitch;
  for (uint32_t first = warp * rows; first < arguments.count; first += gridDim.x * warps * rows) {
    const uint32_t of_lane = first + device::lane_id() / Lanes::count;
    const bool exists = Lanes::is_warp || of_lane < arguments.count;
    const uint32_t number = exists ? of_lane : first;
    const char* const row = arguments.rows + number * arguments.row_stride;
    auto* const payload = reinterpret_cast<uint32_t*>(arguments.payloads + uint64_t{number} * arguments.payload_pitch);
    uint32_t bytes =
        Row::encode(arguments.format, reinterpret_cast<const Elem*>(row), payload, reinterpret_cast<Elem*>(scratch),
                    reinterpret_cast<uint32_t*>(scratch + arguments.map_offset), shared, exists);
    if (exists) {
      if (bytes == 0) bytes = store_raw<Lanes>(row, arguments.format.row_bytes, payload);
      if (Lanes::lane() == 0) arguments.lengths[number] = bytes;
    }
    __syncwarp();
  }
}

}  // namespace narrowcast::store::cuda
