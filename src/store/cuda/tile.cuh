// A warp divides into tiles of 1 to 32 lanes (a power of two), each of which works on one row. All lanes of the warp
// call these functions together.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"

namespace narrowcast::store::cuda {

struct Tile {
  uint32_t lanes;   // of a tile
  uint32_t lane;    // in its tile
  uint32_t number;  // of this lane's tile

  __device__ Tile(uint32_t lanes, int lane_of_warp)
      : lanes(lanes), lane(static_cast<uint32_t>(lane_of_warp) % lanes), number(lane_of_warp / lanes) {}

  // The sum of `value` over this lane and the lower lanes of its tile.
  __device__ uint32_t inclusive_scan(uint32_t value) const { return device::inclusive_scan(value, lanes); }
  // The `value` of lane `from` of this tile.
  __device__ uint32_t broadcast(uint32_t value, uint32_t from) const {
    return __shfl_sync(device::all_lanes, value, first_lane() + from);
  }
  __device__ uint32_t sum(uint32_t value) const { return broadcast(inclusive_scan(value), lanes - 1); }
  // Whether `condition` holds for all lanes of this tile.
  __device__ bool all(bool condition) const {
    const uint32_t own = (lanes == 32 ? device::all_lanes : (1u << lanes) - 1) << first_lane();
    return (~__ballot_sync(device::all_lanes, condition) & own) == 0;
  }

 private:
  __device__ uint32_t first_lane() const { return number * lanes; }
};

}  // namespace narrowcast::store::cuda
