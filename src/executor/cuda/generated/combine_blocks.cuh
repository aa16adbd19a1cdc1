// Reduces two blocks in shared memory. Unlike BlockSums this keeps no sums in registers.
#pragma once

#include "executor/cuda/average.cuh"
#include "executor/cuda/word_values.cuh"

namespace narrowcast::executor::cuda::generated {

// The whole warp replaces `second` by the reduction of both blocks, rounded once. Both are 16-byte aligned.
// average: the last step. Results beyond the end of the values are not used.
template <ncast_dtype Dtype, ncast_redop Op, uint32_t block_bytes>
__device__ __forceinline__ void combine_blocks(const char* first, char* second,
                                               const Average<typename Number<Dtype>::Accumulator>& average, int lane) {
  using Accumulator = typename Number<Dtype>::Accumulator;
  constexpr ncast_redop combination = Op == NCAST_AVG ? NCAST_SUM : Op;
  constexpr int values = word_values<Dtype>;
  const auto combined = [&](uint64_t a, uint64_t b) {
    Accumulator sums[values], terms[values];
    widen<Dtype>(a, sums);
    widen<Dtype>(b, terms);
#pragma unroll
    for (int i = 0; i < values; ++i) {
      const Accumulator sum = codec::cuda::reduced(combination, sums[i], terms[i]);
      sums[i] = average.divides() ? average.divided(sum) : average.multiplied(sum);
    }
    return narrow<Dtype>(sums);
  };
  // Four vectors at a time hide the latency of their loads.
#pragma unroll 4
  for (uint32_t at = lane; at < block_bytes / sizeof(ulonglong2); at += 32) {
    const ulonglong2 a = reinterpret_cast<const ulonglong2*>(first)[at];
    auto& b = reinterpret_cast<ulonglong2*>(second)[at];
    b = {combined(a.x, b.x), combined(a.y, b.y)};
  }
}

}  // namespace narrowcast::executor::cuda::generated
