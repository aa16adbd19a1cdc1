// Moves payloads from where they were encoded to where they are stored. A tile is 32 rows; a prefix sum over the tiles
// says where it begins, so no atomic operations are needed.
#pragma once

#include <cstdint>

#include "../../../device/warp.cuh"
#include "encode_arguments.h"

namespace narrowcast::store::cuda {

// The units of a row that are stored end to end.
__device__ inline uint32_t packed_units(const PlaceArguments& arguments, uint32_t row) {
  if (row >= arguments.count) return 0;
  const uint32_t bytes = arguments.lengths[row];
  if (bytes <= arguments.slot_bytes) return 0;
  return (bytes + arguments.unit_bytes - 1) / arguments.unit_bytes;
}

// Copies a payload to memory of `to_bytes` bytes, with zeros behind it. Both are aligned to 16 bytes, and the length is
// a multiple of 4.
__device__ inline void copy_padded(const char* payload, uint32_t bytes, char* to, uint32_t to_bytes) {
  for (uint32_t at = 16 * device::lane_id(); at < to_bytes; at += 512) {
    uint4 vector = {0, 0, 0, 0};
    if (at + 16 <= bytes) {
      vector = *reinterpret_cast<const uint4*>(payload + at);
    } else {
      const auto* const words = reinterpret_cast<const uint32_t*>(payload + at);
      if (at < bytes) vector.x = words[0];
      if (at + 4 < bytes) vector.y = words[1];
      if (at + 8 < bytes) vector.z = words[2];
    }
    *reinterpret_cast<uint4*>(to + at) = vector;
  }
}

__device__ inline uint32_t tiles_of(const PlaceArguments& arguments) {
  return (arguments.count + rows_per_tile - 1) / rows_per_tile;
}

// Any number of CTAs.
__device__ inline void sum_tiles(const PlaceArguments& arguments) {
  const uint32_t warps = blockDim.x / 32, tiles = tiles_of(arguments);
  for (uint32_t tile = blockIdx.x * warps + threadIdx.x / 32; tile < tiles; tile += gridDim.x * warps) {
    const uint32_t units = packed_units(arguments, tile * rows_per_tile + device::lane_id());
    const uint32_t sum = __reduce_add_sync(device::all_lanes, units);
    if (device::lane_id() == 0) arguments.tile_units[tile] = sum;
  }
}

// One warp. Each lane takes a run of tiles, whose loads do not wait for each other.
__device__ inline void scan_tiles(const PlaceArguments& arguments) {
  const uint32_t lane = device::lane_id(), tiles = tiles_of(arguments), run = (tiles + 31) / 32;
  const uint32_t begin = min(lane * run, tiles), end = min(begin + run, tiles);
  uint32_t* const units = arguments.tile_units;
  uint32_t own = 0;
#pragma unroll 8
  for (uint32_t tile = begin; tile < end; ++tile) own += units[tile];
  const uint32_t up_to = device::inclusive_scan(own);
  uint32_t before = up_to - own;
#pragma unroll 8
  for (uint32_t tile = begin; tile < end; ++tile) {
    const uint32_t here = units[tile];
    units[tile] = before;
    before += here;
  }
  if (lane == 31) {
    *arguments.run = {*arguments.piece_units, up_to};
    *arguments.piece_units += up_to;
  }
}

// Any number of CTAs. warps_per_tile warps share a tile: each finds the places of all its rows, and moves some of them.
__device__ inline void place_rows(const PlaceArguments& arguments) {
  const uint32_t lane = device::lane_id(), warps = blockDim.x / 32, step = arguments.warps_per_tile;
  const uint32_t piece_begin = arguments.run->begin, items = tiles_of(arguments) * step;
  for (uint32_t item = blockIdx.x * warps + threadIdx.x / 32; item < items; item += gridDim.x * warps) {
    const uint32_t tile = item / step, part = item % step;
    const uint32_t first = tile * rows_per_tile, own_row = first + lane;
    const uint32_t own_units = packed_units(arguments, own_row);
    const uint32_t own_end = arguments.tile_units[tile] + device::inclusive_scan(own_units);
    const uint32_t own_bytes = own_row < arguments.count ? arguments.lengths[own_row] : 0;
    if (part == 0 && own_row < arguments.count) {
      if (arguments.slot_bytes == 0)
        arguments.numbers[own_row] = piece_begin + own_end;
      else if (own_units != 0)
        arguments.numbers[own_end - 1] = arguments.first_row + own_row;
    }
    const uint32_t rows = min(arguments.count - first, rows_per_tile);
    for (uint32_t i = part; i < rows; i += step) {
      const uint32_t units = __shfl_sync(device::all_lanes, own_units, i);
      const uint32_t end = __shfl_sync(device::all_lanes, own_end, i);
      const uint32_t bytes = __shfl_sync(device::all_lanes, own_bytes, i);
      const char* const payload = arguments.payloads + uint64_t{first + i} * arguments.payload_pitch;
      if (units != 0)
        copy_padded(payload, bytes, arguments.packed + uint64_t{end - units} * arguments.unit_bytes,
                    units * arguments.unit_bytes);
      // The host stores a redirect in the slot of a longer payload.
      if (arguments.slot_bytes != 0)
        copy_padded(payload, units != 0 ? 0 : bytes, arguments.slots + uint64_t{first + i} * arguments.slot_bytes,
                    arguments.slot_bytes);
    }
  }
}

// Any number of CTAs. Stores whole 128-byte lines of the host's memory, so that the link carries few partial ones.
__device__ inline void copy_out(const CopyOutArguments& arguments) {
  constexpr uint64_t at_a_time = 4;  // vectors that a thread loads before it stores them
  const uint64_t bytes = uint64_t{arguments.run->units} * arguments.unit_bytes;
  char* const to = arguments.to + uint64_t{arguments.run->begin} * arguments.unit_bytes;
  const uint64_t in_line = reinterpret_cast<uintptr_t>(to) % 128, end = in_line + bytes;
  const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, threads = uint64_t{gridDim.x} * blockDim.x;
  if (thread == 0) *arguments.units_to = arguments.run->begin + arguments.run->units;
  if (arguments.rows != nullptr)
    for (uint64_t i = thread; i < arguments.run->units; i += threads)
      arguments.rows_to[arguments.run->begin + i] = arguments.rows[i];
  const uint64_t step = threads * 16;
  for (uint64_t first = thread * 16; first < end; first += at_a_time * step) {
    uint4 vectors[at_a_time];
#pragma unroll
    for (uint64_t i = 0; i < at_a_time; ++i)
      if (const uint64_t at = first + i * step; at >= in_line && at < end)
        vectors[i] = *reinterpret_cast<const uint4*>(arguments.packed + (at - in_line));
#pragma unroll
    for (uint64_t i = 0; i < at_a_time; ++i)
      if (const uint64_t at = first + i * step; at >= in_line && at < end)
        *reinterpret_cast<uint4*>(to + (at - in_line)) = vectors[i];
  }
}

}  // namespace narrowcast::store::cuda
