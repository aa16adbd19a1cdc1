// What NVRTC does not provide: the parts of the standard library and of CUDA's headers that kernels use. Other
// compilers have the real headers, and NVRTC gets this file instead of all of them (kernel_sources.h), so that no CUDA
// headers and no host compiler have to be installed.
#pragma once

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using intptr_t = long;
using uintptr_t = unsigned long;
using size_t = unsigned long;
using ptrdiff_t = long;
#define UINT32_MAX 0xffffffffu
#define SIZE_MAX 0xfffffffffffffffful
#define offsetof(type, member) ((size_t)__INTADDR__(&(((type*)0)->member)))

namespace std {

// Concepts, because constants would be variables (kernel_constants.h).
template <typename A, typename B>
struct is_same {
  enum : bool { value = false };
};
template <typename A>
struct is_same<A, A> {
  enum : bool { value = true };
};
template <typename A, typename B>
concept is_same_v = bool{is_same<A, B>::value};

template <bool condition, typename A, typename B>
struct conditional {
  using type = A;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool condition, typename A, typename B>
using conditional_t = typename conditional<condition, A, B>::type;

template <typename T>
concept is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
// Of the types that kernels reduce.
template <typename T>
concept is_integral_v = is_same_v<T, int8_t> || is_same_v<T, uint8_t> || is_same_v<T, int32_t> ||
                        is_same_v<T, uint32_t> || is_same_v<T, int64_t> || is_same_v<T, uint64_t>;

template <typename From, typename To>
concept convertible_to = requires(From (*from)()) { static_cast<To>(from()); };

template <typename To, typename From>
__device__ constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace std

// The value types of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h, with the conversions that reductions use. They are the
// instructions that those headers use on GPUs that have them: since compute capability 8.0, and for float8 since 8.9.

struct __half {
  uint16_t bits;
  __device__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};
struct __half2 {
  uint32_t bits;
};
__device__ inline __half2 __floats2half2_rn(float a, float b) {
  __half2 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair.bits) : "f"(b), "f"(a));
  return pair;
}

struct __nv_bfloat16 {
  uint16_t bits;
  __device__ operator float() const { return __uint_as_float(uint32_t{bits} << 16); }
};
struct __nv_bfloat162 {
  uint32_t bits;
};
__device__ inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  __nv_bfloat162 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair.bits) : "f"(b), "f"(a));
  return pair;
}

struct __nv_fp8_e4m3 {
  uint8_t bits;
};
struct __nv_fp8_e5m2 {
  uint8_t bits;
};
using __nv_fp8x2_storage_t = uint16_t;
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
struct __half2_raw {
  uint32_t bits;
};
__device__ inline float2 __half22float2(__half2_raw pair) {
  return {float(__half{static_cast<uint16_t>(pair.bits)}), float(__half{static_cast<uint16_t>(pair.bits >> 16)})};
}
__device__ inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t values, __nv_fp8_interpretation_t kind) {
  __half2_raw pair;
  if (kind == __NV_E4M3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair.bits) : "h"(values));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair.bits) : "h"(values));
  }
  return pair;
}
// Saturates, whatever the argument says.
__device__ inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 values, __nv_saturation_t,
                                                                __nv_fp8_interpretation_t kind) {
  __nv_fp8x2_storage_t pair;
  if (kind == __NV_E4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(values.y), "f"(values.x));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(values.y), "f"(values.x));
  }
  return pair;
}
