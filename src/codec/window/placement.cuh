// Chooses a block's window and the width of its codes with one warp, by the encoder's rule in docs/format/window.md.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/warp.cuh"
#include "format.h"
#include "parts.cuh"

namespace narrowcast::codec::window {

struct Window {
  uint32_t width;  // 0: the block is stored raw
  uint32_t base;
  uint32_t kept;  // the kept_bits() of the trimmed type; 0: the type is not trimmed
  __device__ uint32_t escape_code() const { return (1u << width) - 1; }
};

// Calls visit.operator()<Stored>() with the type as it is stored. kept: 0 or valid for Type.trimmed().
template <ValueType Type, typename Visit>
__device__ __forceinline__ auto as_stored(uint32_t kept, Visit visit) {
  if constexpr (Type.can_keep(8)) {
    if (kept == 8) return visit.template operator()<Type.trimmed(8)>();
  }
  if constexpr (Type.can_keep(11)) {
    if (kept == 11) return visit.template operator()<Type.trimmed(11)>();
  }
  if constexpr (Type.can_keep(24)) {
    if (kept == 24) return visit.template operator()<Type.trimmed(24)>();
  }
  return visit.template operator()<Type>();
}

// The value for Window::kept. The whole warp calls it, and all lanes get the same result.
template <ValueType Type>
__device__ uint32_t least_kept(const char* values, int lane) {
  uint32_t even = 0, odd = 0;  // words
#pragma unroll
  for (int at = 0; at < Type.block_bytes(); at += lanes * vector_bytes) {
    const auto vector = *reinterpret_cast<const uint4*>(values + at + lane * vector_bytes);
    even |= vector.x | vector.z;
    odd |= vector.y | vector.w;
  }
  if constexpr (Type.value_bytes == 8) {
    even = __reduce_or_sync(device::all_lanes, even);
    odd = __reduce_or_sync(device::all_lanes, odd);
    return Type.least_kept(uint64_t{odd} << 32 | even);
  } else {
    const uint32_t used = __reduce_or_sync(device::all_lanes, even | odd);
    return Type.least_kept(Type.value_bytes == 2 ? used | used >> 16 : used);
  }
}

// In shared memory. The last bin counts the samples outside all others and is never read.
using Histogram = uint32_t[bins + 1];

// Same as choose_window() in reference.cc, with one bin of the histogram per lane. The whole warp calls it, and all
// lanes get the same result. values: in shared memory, visible to the whole warp.
template <ValueType Type>
__device__ Window place_window(const char* values, Histogram& histogram, int lane) {
  uint32_t sample[samples_per_lane];
  uint32_t smallest = ~0u, used = 0;
#pragma unroll
  for (int i = 0; i < samples_per_lane; ++i) {
    const char* value = values + i * (Type.block_bytes() / samples_per_lane) + lane * vector_bytes +
                        (lane + i) % Type.vector_elems() * Type.value_bytes;
    if constexpr (Type.value_bytes == 4) {
      const uint32_t bits = *reinterpret_cast<const uint32_t*>(value);  // one load for exponent and mantissa
      sample[i] = bits >> 23 & 0xff;
      used |= bits;
    } else {
      sample[i] = exponent_at<Type>(value);
      using Low = std::conditional_t<Type.value_bytes == 2, uint16_t, uint32_t>;
      if constexpr (Type.least_trim_mask() != 0) used |= *reinterpret_cast<const Low*>(value);
    }
    smallest = min(smallest, sample[i]);
  }
  histogram[lane] = 0;
  // Few blocks pass this test and cannot be trimmed.
  uint32_t kept = 0;
  if constexpr (Type.least_trim_mask() != 0) {
    if (!__any_sync(device::all_lanes, (used & Type.least_trim_mask()) != 0)) kept = least_kept<Type>(values, lane);
  }
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
  Window best{0, 0, kept};
  uint32_t best_cost = 0;
  as_stored<Type>(kept,
                  [&]<ValueType Stored>() { best_cost = (Type.exponent_bits + Stored.trimmed_bits()) * samples; });
  const auto consider = [&](uint32_t width, uint32_t place) -> uint32_t {
    const uint32_t cost = width * samples + escape_cost_bits * (samples - (place >> 5));
    // Among equal costs the widest window wins, whatever the order of the calls.
    if (cost < best_cost || (cost == best_cost && best.width != 0 && width > best.width)) {
      best_cost = cost;
      best = {width, min(lowest + 31 - (place & 31), (1u << Type.exponent_bits) - (1u << width)), kept};
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
