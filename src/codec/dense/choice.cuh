// Chooses base, order and code of a group with one warp, by the encoder's rule in docs/format/dense.md.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "format.h"
#include "parts.cuh"

namespace narrowcast::codec::dense {

struct Choice {
  uint32_t code, order, base;
  __device__ uint32_t single() const { return code & 3; }
  __device__ uint32_t paired() const { return code >> 2; }
  __device__ uint32_t digit_ranks() const { return 6 - single(); }
  __device__ uint32_t ranks() const { return 22 - single(); }
  __device__ uint32_t far_ones() const { return 16u >> paired(); }
};

static __device__ const uint16_t order_table[orders] = {NARROWCAST_DENSE_ORDERS};

// As rank_offset(), with the order's bits.
__device__ __forceinline__ int offset_of_rank(uint32_t bits, uint32_t rank) {
  const int above = __popc(bits & ((2u << rank) - 1));
  return above - ((bits >> rank & 1) != 0 ? 0 : static_cast<int>(rank));
}

// In shared memory. The bins, one for the exponents outside them, and one for zeros that have a rank of their own. Each
// has four counters, which different lanes use: most exponents of a group are in a few bins, and additions to one
// counter happen one after another.
inline constexpr int counters = 4;
inline constexpr int all_bins = bins + 2;
using Histogram = uint32_t[all_bins * counters];
// Later the sums of the bins, between as many zeros as ranks can be away from the base.
inline constexpr int margin = most_ranks;
static_assert(margin + bins + margin <= all_bins * counters);

// The whole warp calls it, and all lanes get the same result. values: of the block, visible to the whole warp.
template <ValueType Type>
__device__ Choice choose(const char* values, int group, bool zero_first, Histogram& histogram, int lane) {
  uint32_t least = ~0u;
#pragma unroll
  for (int i = 0; i < anchor_samples; ++i) {
    const uint32_t exponent = exponent_of<Type>(values + device::value_offset<Type.value_bytes>(group, 9 * i, lane));
    least = min(least, exponent - 1);  // a zero becomes the largest
  }
  for (int i = lane; i < all_bins * counters; i += 32) histogram[i] = 0;
  const int anchor = static_cast<int>(__reduce_max_sync(device::all_lanes, least + 1));
  const uint32_t lowest = max(anchor - bins_below_anchor, 0);
  __syncwarp();
  uint32_t* const own = histogram + lane % counters;
  const uint32_t ranked_first = zero_first ? 0 : ~0u;  // the exponent that has a rank of its own
#pragma unroll 2
  for (int word = 0; word < 8; ++word) {
    const auto four = FourValues<Type>::load_from(values, group, word, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t exponent = four.exponent(i);
      const uint32_t bin = min(exponent - lowest, static_cast<uint32_t>(bins));  // wraps around below `lowest`
      atomicAdd(own + (exponent == ranked_first ? bins + 1 : bin) * counters, 1u);
    }
  }
  __syncwarp();
  uint32_t count = 0, zeros = 0;
#pragma unroll
  for (int i = 0; i < counters; ++i) {
    count += histogram[lane * counters + i];
    zeros += histogram[(bins + 1) * counters + i];
  }
  const uint32_t mode = 31 - (__reduce_max_sync(device::all_lanes, count << 5 | (31 - lane)) & 31);
  __syncwarp();
  if (lane < margin) histogram[lane] = histogram[margin + bins + lane] = 0;
  histogram[margin + lane] = count;
  __syncwarp();

  // Each lane evaluates one order with all codes, rank by rank. left: values with this rank or a higher one. The ones
  // of a code's escapes are a sum of these, over all ranks above its first or every other one.
  uint32_t cost[codes];
#pragma unroll
  for (uint32_t& bits : cost) bits = 2 * group_elems;
  uint32_t left = group_elems, sum_of_all = 0, sum_of[2] = {0, 0};
  uint32_t order = order_table[lane];
  const uint32_t* above = histogram + margin + mode;
  const uint32_t* below = above;
#pragma unroll
  for (int rank = 0; rank <= most_ranks; ++rank) {
    sum_of_all += left;
    sum_of[rank % 2] += left;
#pragma unroll
    for (int number = 0; number < codes; ++number) {
      const Code code = code_of(number);
      const uint32_t sum = code.paired != 0 ? sum_of[rank % 2] : sum_of_all;
      if (rank == code.single) cost[number] += left;
      if (rank == code.digit_ranks()) cost[number] += (code.paired != 0 ? left : 0) - sum;
      if (rank == code.ranks()) cost[number] += sum + 8 * left;
    }
    if (rank == most_ranks) break;
    const uint32_t* bin = above;
    if (rank > 1 || (rank == 1 && !zero_first)) {
      order >>= 1;
      const uint32_t is_above = order & 1;
      above += is_above;
      below -= is_above ^ 1;
      bin = is_above != 0 ? above : below;
    }
    left -= rank == 0 && zero_first ? zeros : *bin;
  }
  __syncwarp();  // the caller may overwrite the histogram
  uint32_t best = ~0u;
#pragma unroll
  for (int number = 0; number < codes; ++number)
    best = min(best, cost[number] << 8 | static_cast<uint32_t>(lane) << order_shift | number);
  best = ~__reduce_max_sync(device::all_lanes, ~best);
  return {best & (codes - 1), best >> order_shift & (orders - 1),
          min(lowest + mode, static_cast<uint32_t>(Type.exponent_mask()))};
}

}  // namespace narrowcast::codec::dense
