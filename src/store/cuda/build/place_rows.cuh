// Moves payloads from where they were encoded to where they are stored. A warp takes 32 rows, a tile; a prefix sum over
// the tiles says where it begins, so no atomic operations are needed.
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

// One warp.
__device__ inline void scan_tiles(const PlaceArguments& arguments) {
  const uint32_t lane = device::lane_id(), tiles = tiles_of(arguments);
  uint32_t before = 0;
  for (uint32_t first = 0; first < tiles; first += 32) {
    const uint32_t tile = first + lane, units = tile < tiles ? arguments.tile_units[tile] : 0;
    const uint32_t up_to = device::inclusive_scan(units);
    if (tile < tiles) arguments.tile_units[tile] = before + up_to - units;
    before += __shfl_sync(device::all_lanes, up_to, 31);
  }
  if (lane == 0) {
    *arguments.run = {*arguments.piece_units, before};
    *arguments.piece_units += before;
  }
}

// Any number of CTAs.
__device__ inline void place_rows(const PlaceArguments& arguments) {
  const uint32_t lane = device::lane_id(), warps = blockDim.x / 32, tiles = tiles_of(arguments);
  const uint32_t piece_begin = arguments.run->begin;
  for (uint32_t tile = blockIdx.x * warps + threadIdx.x / 32; tile < tiles; tile += gridDim.x * warps) {
    const uint32_t first = tile * rows_per_tile, own_row = first + lane;
    const uint32_t own_units = packed_units(arguments, own_row);
    const uint32_t own_end = arguments.tile_units[tile] + device::inclusive_scan(own_units);
    const uint32_t own_bytes = own_row < arguments.count ? arguments.lengths[own_row] : 0;
    if (own_row < arguments.count) arguments.ends[own_row] = piece_begin + own_end;
    const uint32_t rows = min(arguments.count - first, rows_per_tile);
    for (uint32_t i = 0; i < rows; ++i) {
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
  const uint64_t bytes = uint64_t{arguments.run->units} * arguments.unit_bytes;
  char* const to = arguments.to + uint64_t{arguments.run->begin} * arguments.unit_bytes;
  const uint64_t in_line = reinterpret_cast<uintptr_t>(to) % 128;
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t at = (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 16; at < in_line + bytes; at += threads * 16)
    if (at >= in_line)
      *reinterpret_cast<uint4*>(to + (at - in_line)) =
          *reinterpret_cast<const uint4*>(arguments.packed + (at - in_line));
}

}  // namespace narrowcast::store::cuda
