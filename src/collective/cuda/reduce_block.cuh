// The sum of a block over the ranks, in registers: a warp holds the block, each lane every 32nd vector of 16 bytes.
#pragma once

#include "codec/cuda/reduce_value.cuh"
#include "collective/cuda/average.cuh"
#include "device/warp.cuh"

namespace narrowcast::collective::cuda {

using codec::cuda::Number;

// Rounds once, to nearest even; what is too large becomes infinity, or NaN where the type has none.
template <ncast_dtype Dtype>
__device__ typename Number<Dtype>::Value narrowed(typename Number<Dtype>::Accumulator value) {
  using Value = typename Number<Dtype>::Value;
  if constexpr (Dtype == NCAST_FLOAT8_E4M3 || Dtype == NCAST_FLOAT8_E5M2) {
    Value narrow;
    narrow.__x = __nv_cvt_float_to_fp8(value, __NV_NOSAT, Dtype == NCAST_FLOAT8_E4M3 ? __NV_E4M3 : __NV_E5M2);
    return narrow;
  } else if constexpr (Dtype == NCAST_BFLOAT16) {
    return __float2bfloat16_rn(value);
  } else if constexpr (Dtype == NCAST_FLOAT16) {
    return __float2half_rn(value);
  } else {
    return value;
  }
}

template <ncast_dtype Dtype, uint32_t block_bytes>
class BlockSums {
  using Value = typename Number<Dtype>::Value;
  using Accumulator = typename Number<Dtype>::Accumulator;
  static constexpr int vectors = block_bytes / (32 * sizeof(uint4));
  static constexpr int vector_elems = sizeof(uint4) / sizeof(Value);
  struct alignas(16) Vector {
    Value values[vector_elems];
  };

 public:
  // values: the block in shared memory, 16-byte aligned; what is beyond its end is not used.
  __device__ void set(const char* values, int lane) {
    for_each(values, lane, [](Accumulator& sum, Value value) { sum = static_cast<Accumulator>(value); });
  }
  __device__ void reduce(ncast_redop op, const char* values, int lane) {
    switch (op) {
      case NCAST_PROD: return reduce_with<NCAST_PROD>(values, lane);
      case NCAST_MIN: return reduce_with<NCAST_MIN>(values, lane);
      case NCAST_MAX: return reduce_with<NCAST_MAX>(values, lane);
      default: return reduce_with<NCAST_SUM>(values, lane);
    }
  }
  // Writes the results to shared memory.
  __device__ void finish(ncast_redop op, int ranks, char* values, int lane) const {
    const Average<Accumulator> average(op, ranks);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      Vector vector;
#pragma unroll
      for (int i = 0; i < vector_elems; ++i) {
        vector.values[i] = narrowed<Dtype>(average.of(sums_[v * vector_elems + i]));
      }
      reinterpret_cast<Vector*>(values)[v * 32 + lane] = vector;
    }
  }

 private:
  template <typename Function>
  __device__ void for_each(const char* values, int lane, Function function) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const Vector vector = reinterpret_cast<const Vector*>(values)[v * 32 + lane];
#pragma unroll
      for (int i = 0; i < vector_elems; ++i) function(sums_[v * vector_elems + i], vector.values[i]);
    }
  }
  template <ncast_redop Op>
  __device__ void reduce_with(const char* values, int lane) {
    for_each(values, lane, [](Accumulator& sum, Value value) {
      sum = codec::cuda::reduced(Op, sum, static_cast<Accumulator>(value));
    });
  }

  Accumulator sums_[vectors * vector_elems];
};

}  // namespace narrowcast::collective::cuda
