// Instructions for floats that CUDA has no functions for. Conversions of pairs (PTX ISA 9.7.9.22, cvt) round to
// nearest, ties to even. The first of a pair is in the low half. A NaN becomes a NaN with all bits set but the sign.
#pragma once

#include <cstdint>

namespace narrowcast::device {

__device__ __forceinline__ uint32_t halves_of(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ uint32_t bfloat16s_of(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ float2 floats_of_halves(uint32_t pair) {
  float2 floats;
  asm("{\n"
      ".reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.f32.f16 %0, first;\n"
      "cvt.f32.f16 %1, second;\n"
      "}"
      : "=f"(floats.x), "=f"(floats.y)
      : "r"(pair));
  return floats;
}

// The larger magnitude, or NaN if one is NaN.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
}
// 1 / value with an error of one unit in the last place. value, and the result: normal numbers.
__device__ __forceinline__ float approximate_reciprocal(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// Float8 of finite values; larger magnitudes become the largest. Only if has_float8.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool has_float8 = true;
#else
inline constexpr bool has_float8 = false;
#endif
__device__ __forceinline__ uint32_t e4m3s_of(float first, float second) {
  uint16_t pair = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
#endif
  return pair;
}
__device__ __forceinline__ uint32_t e5m2s_of(float first, float second) {
  uint16_t pair = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
#endif
  return pair;
}

}  // namespace narrowcast::device
