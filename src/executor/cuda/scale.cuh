// Multiplies the values that a rank contributes to a sum with a factor, with the bits of executor/host/reduction.cc.
#pragma once

#include "executor/cuda/word_values.cuh"
#include "executor/factor.h"

namespace narrowcast::executor::cuda {

template <ncast_dtype Dtype>
inline constexpr bool can_scale = std::is_floating_point_v<typename Number<Dtype>::Accumulator>;

template <ncast_dtype Dtype>
__device__ __forceinline__ typename Number<Dtype>::Accumulator number_of(const Factor& factor) {
  using Accumulator = typename Number<Dtype>::Accumulator;
  if (factor.in_memory == nullptr) return static_cast<Accumulator>(factor.value);
  uint64_t word = 0;
  memcpy(&word, factor.in_memory, sizeof(typename Number<Dtype>::Value));
  Accumulator numbers[word_values<Dtype>];
  widen<Dtype>(word, numbers);
  return numbers[0];
}

template <ncast_dtype Dtype>
__device__ __forceinline__ uint64_t scaled_word(uint64_t word, typename Number<Dtype>::Accumulator factor) {
  typename Number<Dtype>::Accumulator numbers[word_values<Dtype>];
  widen<Dtype>(word, numbers);
#pragma unroll
  for (int i = 0; i < word_values<Dtype>; ++i) numbers[i] *= factor;
  return narrow<Dtype>(numbers);
}

// Scales a block in shared memory, 16-byte aligned and visible to the whole warp, which calls this and synchronizes
// before it reads the result. Not inlined, so that only such calls need its registers.
template <ncast_dtype Dtype, uint32_t block_bytes>
__device__ __noinline__ void scale_block(char* block, const Factor& factor, int lane) {
  __builtin_assume(__isShared(block));
  const auto number = number_of<Dtype>(factor);
#pragma unroll 1
  for (uint32_t at = lane; at < block_bytes / sizeof(ulonglong2); at += 32) {
    ulonglong2& vector = reinterpret_cast<ulonglong2*>(block)[at];
    vector = {scaled_word<Dtype>(vector.x, number), scaled_word<Dtype>(vector.y, number)};
  }
}

}  // namespace narrowcast::executor::cuda
