// Where a block's window goes and how wide its codes are: the encoder's rule of docs/format/window.md, by one warp.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "../../format/window.h"
#include "parts.cuh"

namespace narrowcast::codec::window {

struct Window {
  uint32_t width;  // 0: the block is stored raw
  uint32_t base;
  __device__ uint32_t escape_code() const { return (1u << width) - 1; }
};

// In shared memory; the last bin takes what is outside the others, and is not read.
using Histogram = uint32_t[format::window::bins + 1];

// As reference.cc's choose_window, a bin of the histogram to a lane. values: in shared memory, visible to the whole warp,
// which calls and gets the same result.
template <format::window::ValueType Type>
__device__ Window place_window(const char* values, Histogram& histogram, int lane) {
  using namespace format::window;
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
    atomicAdd(&histogram[min(sample[i] - lowest, static_cast<uint32_t>(bins))], 1u);  // wraps below lowest
  __syncwarp();
  const uint32_t count = histogram[lane];
  __syncwarp();  // the histogram is free
  const uint32_t through = device::inclusive_scan(count);

  Window best{0, 0};
  uint32_t best_cost = Type.exponent_bits * samples;
  const auto consider = [&](int width) -> uint32_t {
    const int last = min(lane + (1 << width) - 2, bins - 1);
    const uint32_t covered = __shfl_sync(device::all_lanes, through, last) - through + count;
    // The largest cover and, of equals, the lowest bin.
    const uint32_t most = __reduce_max_sync(device::all_lanes, covered << 5 | (31 - lane));
    const uint32_t cost = width * samples + escape_cost_bits * (samples - (most >> 5));
    // Of equals the widest, whatever the order in which they are considered.
    if (cost < best_cost || (cost == best_cost && best.width != 0 && static_cast<uint32_t>(width) > best.width)) {
      best_cost = cost;
      best = {static_cast<uint32_t>(width), min(lowest + 31 - (most & 31), (1u << Type.exponent_bits) - (1u << width))};
    }
    return cost;
  };
  consider(3);
  const uint32_t cost_of_two = consider(2);
  if (cost_of_two < best_cost + samples) consider(1);  // it saves a bit a sample, and covers no more
  if (best_cost >= 4 * samples) {                      // below that no wider window wins
#pragma unroll
    for (int width = 4; width <= Type.max_width(); ++width) consider(width);
  }
  return best;
}

}  // namespace narrowcast::codec::window
