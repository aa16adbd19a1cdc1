// Converts words of 8 bytes to the numbers that reductions accumulate, and back.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "codec/frame/cuda/reduce_value.cuh"

namespace narrowcast::executor::cuda {

using codec::cuda::Number;

template <ncast_dtype Dtype>
inline constexpr bool is_float8 = Dtype == NCAST_FLOAT8_E4M3 || Dtype == NCAST_FLOAT8_E5M2;
template <ncast_dtype Dtype>
inline constexpr __nv_fp8_interpretation_t float8_kind = Dtype == NCAST_FLOAT8_E4M3 ? __NV_E4M3 : __NV_E5M2;

// Number of values in a word.
template <ncast_dtype Dtype>
inline constexpr int word_values = 8 / sizeof(typename Number<Dtype>::Value);

template <ncast_dtype Dtype>
__device__ __forceinline__ void widen(uint64_t word, typename Number<Dtype>::Accumulator (&to)[word_values<Dtype>]) {
  using Value = typename Number<Dtype>::Value;
  if constexpr (is_float8<Dtype>) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const auto pair = static_cast<__nv_fp8x2_storage_t>(word >> (8 * i));
      const float2 values = __half22float2(__nv_cvt_fp8x2_to_halfraw2(pair, float8_kind<Dtype>));
      to[i] = values.x;
      to[i + 1] = values.y;
    }
  } else if constexpr (Dtype == NCAST_BFLOAT16) {
    // One instruction for a value, where the compiler would first copy it into a register of its own.
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const auto pair = static_cast<uint32_t>(word >> (16 * i));
      to[i] = __uint_as_float(pair << 16);
      to[i + 1] = __uint_as_float(pair & 0xffff0000);
    }
  } else {
    Value values[word_values<Dtype>];
    memcpy(values, &word, sizeof word);
#pragma unroll
    for (int i = 0; i < word_values<Dtype>; ++i) to[i] = static_cast<typename Number<Dtype>::Accumulator>(values[i]);
  }
}

// The conversion saturates values that are too large. Replaces them by NaN or infinity. The thresholds are where
// rounding to nearest even leaves the range: halfway between the largest finite value and the next step.
template <ncast_dtype Dtype>
__device__ __forceinline__ uint32_t narrowed_float8(float a, float b) {
  uint32_t pair = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, float8_kind<Dtype>);
  if constexpr (Dtype == NCAST_FLOAT8_E4M3) {
    if (!(fabsf(a) <= 464.f)) pair |= 0x7f;
    if (!(fabsf(b) <= 464.f)) pair |= 0x7f00;
  } else {
    if (fabsf(a) >= 61440.f) pair = (pair & 0xff80) | 0x7c;
    if (fabsf(b) >= 61440.f) pair = (pair & 0x80ff) | 0x7c00;
  }
  return pair;
}

// Rounds once, to nearest even. Values that are too large become infinity, or NaN if the type has no infinity.
template <ncast_dtype Dtype>
__device__ __forceinline__ uint64_t narrow(const typename Number<Dtype>::Accumulator (&from)[word_values<Dtype>]) {
  using Value = typename Number<Dtype>::Value;
  uint64_t word = 0;
  if constexpr (is_float8<Dtype>) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) word |= uint64_t{narrowed_float8<Dtype>(from[i], from[i + 1])} << (8 * i);
  } else if constexpr (Dtype == NCAST_BFLOAT16) {
    const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(from[0], from[1]), __floats2bfloat162_rn(from[2], from[3])};
    memcpy(&word, pairs, sizeof word);
  } else if constexpr (Dtype == NCAST_FLOAT16) {
    const __half2 pairs[2] = {__floats2half2_rn(from[0], from[1]), __floats2half2_rn(from[2], from[3])};
    memcpy(&word, pairs, sizeof word);
  } else {
    static_assert(std::is_same_v<Value, typename Number<Dtype>::Accumulator>);
    memcpy(&word, from, sizeof word);
  }
  return word;
}

}  // namespace narrowcast::executor::cuda
