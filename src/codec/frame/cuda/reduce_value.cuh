// One step of a reduction on the GPU: accumulator = op(accumulator, value).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "narrowcast/types.h"

namespace narrowcast::codec::cuda {

// The C++ types of a dtype's values and of their accumulator. Floats accumulate in fp32 or wider, integers in their own
// type.
template <ncast_dtype Dtype>
struct Number;
template <>
struct Number<NCAST_INT8> {
  using Value = int8_t;
  using Accumulator = int8_t;
};
template <>
struct Number<NCAST_UINT8> {
  using Value = uint8_t;
  using Accumulator = uint8_t;
};
template <>
struct Number<NCAST_INT32> {
  using Value = int32_t;
  using Accumulator = int32_t;
};
template <>
struct Number<NCAST_UINT32> {
  using Value = uint32_t;
  using Accumulator = uint32_t;
};
template <>
struct Number<NCAST_INT64> {
  using Value = int64_t;
  using Accumulator = int64_t;
};
template <>
struct Number<NCAST_UINT64> {
  using Value = uint64_t;
  using Accumulator = uint64_t;
};
template <>
struct Number<NCAST_FLOAT16> {
  using Value = __half;
  using Accumulator = float;
};
template <>
struct Number<NCAST_FLOAT32> {
  using Value = float;
  using Accumulator = float;
};
template <>
struct Number<NCAST_FLOAT64> {
  using Value = double;
  using Accumulator = double;
};
template <>
struct Number<NCAST_BFLOAT16> {
  using Value = __nv_bfloat16;
  using Accumulator = float;
};
template <>
struct Number<NCAST_FLOAT8_E4M3> {
  using Value = __nv_fp8_e4m3;
  using Accumulator = float;
};
template <>
struct Number<NCAST_FLOAT8_E5M2> {
  using Value = __nv_fp8_e5m2;
  using Accumulator = float;
};

template <typename T>
__device__ __forceinline__ T smaller(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return fminf(a, b);
  if constexpr (std::is_same_v<T, double>) return fmin(a, b);
  return b < a ? b : a;
}
template <typename T>
__device__ __forceinline__ T larger(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return fmaxf(a, b);
  if constexpr (std::is_same_v<T, double>) return fmax(a, b);
  return b > a ? b : a;
}

// MIN and MAX of floats are the instructions min and max of PTX: they ignore NaN unless both values are NaN, and -0 is
// smaller than +0. Swapping the operands never changes a bit, except for the payload of a float64 NaN. Integers wrap
// around: sums and products are computed in unsigned types.
template <typename T>
__device__ __forceinline__ T reduced(ncast_redop op, T accumulator, T value) {
  using Unsigned = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  using Wrapping = std::conditional_t<std::is_integral_v<T>, Unsigned, T>;
  switch (op) {
    case NCAST_SUM: return static_cast<T>(static_cast<Wrapping>(accumulator) + static_cast<Wrapping>(value));
    case NCAST_PROD: return static_cast<T>(static_cast<Wrapping>(accumulator) * static_cast<Wrapping>(value));
    case NCAST_MIN: return smaller(accumulator, value);
    default: return larger(accumulator, value);
  }
}

// Calls function.operator()<Dtype>() for any value type.
template <typename Function>
cudaError_t dispatch_number(ncast_dtype dtype, Function function) {
  switch (dtype) {
    case NCAST_INT8: return function.template operator()<NCAST_INT8>();
    case NCAST_UINT8: return function.template operator()<NCAST_UINT8>();
    case NCAST_INT32: return function.template operator()<NCAST_INT32>();
    case NCAST_UINT32: return function.template operator()<NCAST_UINT32>();
    case NCAST_INT64: return function.template operator()<NCAST_INT64>();
    case NCAST_UINT64: return function.template operator()<NCAST_UINT64>();
    case NCAST_FLOAT16: return function.template operator()<NCAST_FLOAT16>();
    case NCAST_FLOAT32: return function.template operator()<NCAST_FLOAT32>();
    case NCAST_FLOAT64: return function.template operator()<NCAST_FLOAT64>();
    case NCAST_BFLOAT16: return function.template operator()<NCAST_BFLOAT16>();
    case NCAST_FLOAT8_E4M3: return function.template operator()<NCAST_FLOAT8_E4M3>();
    case NCAST_FLOAT8_E5M2: return function.template operator()<NCAST_FLOAT8_E5M2>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace narrowcast::codec::cuda
