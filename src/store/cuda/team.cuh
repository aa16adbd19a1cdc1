// The warps of a CTA form teams of one or several warps, which decode the same rows.
#pragma once

#include <cstdint>

#include "../../device/ptx/named_barrier.cuh"
#include "../../device/warp.cuh"

namespace narrowcast::store::cuda {

// A team of one warp.
class Alone {
 public:
  static constexpr bool is_alone = true, has_lane_rows = false, has_fixed_lanes = false;
  static constexpr bool has_stages = true;   // rows may have the stages trim and zeros, which the kernel undoes
  static constexpr uint32_t tile_lanes = 0;  // of the shape
  __device__ Alone(uint32_t, uint32_t*) {}
  __device__ static uint32_t warps() { return 1; }
  __device__ static uint32_t number() { return device::warp_id(); }  // of the team
  __device__ static uint32_t warp() { return 0; }                    // in the team
  // All threads of the team wait for each other.
  __device__ static void sync() { __syncwarp(); }
  // The same. Whether `condition` holds in all threads.
  __device__ static bool all(bool condition) {
    __syncwarp();
    return __all_sync(device::all_lanes, condition);
  }
};

// A team of one warp whose coder undoes the stages itself.
class WithoutStages : public Alone {
 public:
  static constexpr bool has_stages = false;
  using Alone::Alone;
};

// A team of one warp whose lanes have a row each: of 64 bytes, in slots of 64 bytes at multiples of 64.
class LaneRows : public Alone {
 public:
  static constexpr bool has_lane_rows = true, has_stages = false;
  static constexpr uint32_t tile_lanes = 1;
  using Alone::Alone;
};

// A team of one warp whose tiles have `lanes` lanes, for rows of up to 32 elements a lane without stages. What depends
// on that is constant.
template <uint32_t lanes>
class FixedLanes : public Alone {
 public:
  static constexpr bool has_stages = false, has_fixed_lanes = true;
  static constexpr uint32_t tile_lanes = lanes;
  using Alone::Alone;
};
using TwoLanes = FixedLanes<2>;
using EightLanes = FixedLanes<8>;

class Team {
 public:
  static constexpr bool is_alone = false, has_lane_rows = false, has_fixed_lanes = false, has_stages = true;
  static constexpr uint32_t tile_lanes = 32;
  // sums: shared memory of the team, 2 * warps words.
  __device__ Team(uint32_t warps, uint32_t* sums)
      : warps_(warps), number_(device::warp_id() / warps), warp_(device::warp_id() % warps), sums_(sums) {}

  __device__ uint32_t warps() const { return warps_; }
  __device__ uint32_t number() const { return number_; }
  __device__ uint32_t warp() const { return warp_; }
  __device__ void sync() const { device::sync_warps(1 + number_, warps_); }
  __device__ bool all(bool condition) const { return device::all_of_warps(1 + number_, warps_, condition); }
  // Waits like sync(). value: the same in all threads of a warp.
  struct Sums {
    uint32_t before, total;  // over the lower warps, and over all
  };
  __device__ Sums sum(uint32_t value) {
    uint32_t* const sums = sums_ + turn_ * warps_;
    turn_ ^= 1;  // others may still read the values of this turn when the next one begins
    sums[warp_] = value;
    sync();
    Sums result = {0, 0};
    for (uint32_t i = 0; i < warps_; ++i) {
      if (i == warp_) result.before = result.total;
      result.total += sums[i];
    }
    return result;
  }

 private:
  uint32_t warps_, number_, warp_, turn_ = 0;
  uint32_t* sums_;
};

}  // namespace narrowcast::store::cuda
