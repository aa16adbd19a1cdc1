// Chooses a block's window and the width of its codes with one warp, by the encoder's rule in docs/format/window.md.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "format.h"
#include "parts.cuh"

namespace narrowcast::codec::window {

struct Window {
  uint32_t width;  // 0: the block is stored raw
  uint32_t base;
  __device__ uint32_t escape_code() const { return (1u << width) - 1; }
};

// In shared memory. The last bin counts the samples outside all others and is never read.
using Histogram = uint32_t[bins + 1];

// Same as choose_window() in reference.cc, with one bin of the histogram per lane. The whole warp calls it, and all
// lanes get the same result. values: in shared memory, visible to the whole warp.
template <ValueType Type>
__device__ Window place_window(const char* values, Histogram& histogram, int lane) {
  uint32_t sample[samples_per_lane];
  uint32_t smallest = ~0u;
#pragma unroll
  for (int i = 0; i < samples_per_lane; ++i) {
    sample[i] = exponent_at<Type>(values + i * (Type.block_bytes() / samples_per_lane) + lane * vector_bytes +
                                  (lane + i) % Type.vector_elems() * Type.value_bytes);
    smallest = min(smallest, sample[i]);
  }
  histogram[lane] = 0;
  const int anchor = static_cast<int>(__reduce_max_sync(device::all_lanes, smallest));
  const uint32_t lowest = max(anchor - bins_below_anchor, 0);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < samples_per_lane; ++i)
    atomicAdd(&histogram[min(sample[i] - lowest, static_cast<uint32_t>(bins))], 1u);  // wraps around below `lowest`
  __syncwarp();
  const uint32_t count = histogram[lane];
  __syncwarp();  // the caller may overwrite the histogram

  // The number of samples in 2, 4, ... adjacent bins from this lane's bin on. A window spans 2^width - 1 bins.
  const uint32_t in_two = count + device::shuffle_down_or_zero(count, 1);
  const uint32_t in_four = in_two + device::shuffle_down_or_zero(in_two, 2);
  // `covered`: samples in a window that begins at this lane's bin. Returns the maximum over all lanes and, in the low
  // five bits, 31 minus the lowest bin that reaches it.
  const auto best_place = [&](uint32_t covered) {
    return __reduce_max_sync(device::all_lanes, covered << 5 | (31 - lane));
  };
  Window best{0, 0};
  uint32_t best_cost = Type.exponent_bits * samples;
  const auto consider = [&](uint32_t width, uint32_t place) -> uint32_t {
    const uint32_t cost = width * samples + escape_cost_bits * (samples - (place >> 5));
    // Among equal costs the widest window wins, whatever the order of the calls.
    if (cost < best_cost || (cost == best_cost && best.width != 0 && width > best.width)) {
      best_cost = cost;
      best = {width, min(lowest + 31 - (place & 31), (1u << Type.exponent_bits) - (1u << width))};
    }
    return cost;
  };
  const uint32_t place_of_three =
      best_place(in_four + device::shuffle_down_or_zero(in_two, 4) + device::shuffle_down_or_zero(count, 6));
  const uint32_t place_of_two = best_place(in_two + device::shuffle_down_or_zero(count, 2));
  consider(3, place_of_three);
  const uint32_t cost_of_two = consider(2, place_of_two);
  if (cost_of_two < best_cost + samples) consider(1, best_place(count));  // width 1 saves at most one bit per sample
  if (best_cost >= 4 * samples) {                                         // otherwise no wider window can win
    const uint32_t in_eight = in_four + device::shuffle_down_or_zero(in_four, 4);
    const uint32_t in_fifteen = in_eight + device::shuffle_down_or_zero(in_four, 8) +
                                device::shuffle_down_or_zero(in_two, 12) + device::shuffle_down_or_zero(count, 14);
    consider(4, best_place(in_fifteen));
    if constexpr (Type.max_width() >= 5) {
      const uint32_t in_sixteen = in_eight + device::shuffle_down_or_zero(in_eight, 8);
      consider(5, best_place(in_sixteen + device::shuffle_down_or_zero(in_fifteen, 16)));
    }
  }
  return best;
}

}  // namespace narrowcast::codec::window
