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

  // The sum of `value` over this lane and the lower lanes of its tile. constant_lanes: its lanes, or 0.
  template <uint32_t constant_lanes = 0>
  __device__ uint32_t inclusive_scan(uint32_t value) const {
    if constexpr (constant_lanes == 0) {
      return device::inclusive_scan(value, lanes);
    } else {
#pragma unroll
      for (uint32_t step = 1; step < constant_lanes; step *= 2) {
        const uint32_t below = __shfl_up_sync(device::all_lanes, value, step, constant_lanes);
        if (lane >= step) value += below;
      }
      return value;
    }
  }
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

// The tile of a lane of a team. shape_lanes: lanes of a tile.
template <typename Team>
__device__ Tile tile_of(uint32_t shape_lanes, int lane_of_warp) {
  Tile tile(Team::tile_lanes != 0 ? Team::tile_lanes : shape_lanes, lane_of_warp);
  // Loops over the lanes of a tile run rarely, and need fewer registers if their number is not a constant.
  if constexpr (Team::has_fixed_lanes) tile.lanes = shape_lanes;
  return tile;
}

}  // namespace narrowcast::store::cuda
