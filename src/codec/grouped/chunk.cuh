// A chunk of adjacent values in the registers of a lane. Neighbouring lanes hold neighbouring chunks, so the lanes of a
// group are neighbours as well. Called by whole warps.
#pragma once

#include <cstdint>

#include "../../device/ptx/convert.cuh"
#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::grouped {

inline constexpr uint32_t infinity_bits = 0x7f800000;
inline constexpr uint32_t magnitude_mask = 0x7fffffff;

__device__ __forceinline__ uint32_t magnitude_bits(float value) { return __float_as_uint(value) & magnitude_mask; }
__device__ __forceinline__ bool is_finite(float value) { return magnitude_bits(value) < infinity_bits; }

__device__ constexpr float largest_of_type(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT16 ? 65504 : dtype == NCAST_BFLOAT16 ? 0x1.fep127f : 0x1.fffffep127f;
}

template <ncast_dtype Dtype>
struct Chunk {
  float value[chunk_elems];

  __device__ __forceinline__ static Chunk load(const void* values, uint32_t chunk) {
    Chunk result;
    if constexpr (Dtype == NCAST_FLOAT32) {
      const uint4* const from = static_cast<const uint4*>(values) + 2 * chunk;
      const uint4 low = from[0], high = from[1];
      const uint32_t words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) result.value[i] = __uint_as_float(words[i]);
    } else {
      const uint4 all = static_cast<const uint4*>(values)[chunk];
      const uint32_t words[] = {all.x, all.y, all.z, all.w};
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; i += 2) {
        if constexpr (Dtype == NCAST_BFLOAT16) {
          result.value[i] = __uint_as_float(words[i / 2] << 16);
          result.value[i + 1] = __uint_as_float(words[i / 2] & 0xffff0000);
        } else {
          const float2 pair = device::floats_of_halves(words[i / 2]);
          result.value[i] = pair.x;
          result.value[i + 1] = pair.y;
        }
      }
    }
    return result;
  }

  // NaN is stored with all bits set but the sign.
  __device__ __forceinline__ void store(void* values, uint32_t chunk) const {
    uint32_t words[chunk_elems];
    if constexpr (Dtype == NCAST_FLOAT32) {
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i)
        words[i] = value[i] != value[i] ? magnitude_mask : __float_as_uint(value[i]);
      static_cast<uint4*>(values)[2 * chunk] = {words[0], words[1], words[2], words[3]};
      static_cast<uint4*>(values)[2 * chunk + 1] = {words[4], words[5], words[6], words[7]};
    } else {
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; i += 2)
        words[i / 2] = Dtype == NCAST_BFLOAT16 ? device::bfloat16s_of(value[i], value[i + 1])
                                               : device::halves_of(value[i], value[i + 1]);
      static_cast<uint4*>(values)[chunk] = {words[0], words[1], words[2], words[3]};
    }
  }

  // The largest bits of a magnitude: above infinity_bits if there is a NaN.
  __device__ __forceinline__ uint32_t largest() const {
    uint32_t most = 0;
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i) most = max(most, magnitude_bits(value[i]));
    return most;
  }

  // The Walsh-Hadamard transform of `values` adjacent values of the warp. factor: rotation_factor(values).
  __device__ __forceinline__ void rotate(uint32_t values, float factor, int lane) {
#pragma unroll
    for (uint32_t step = 1; step < chunk_elems; step *= 2) {
      if (step >= values) break;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i)
        if ((i & step) == 0) {
          const float a = value[i], b = value[i + step];
          value[i] = __fadd_rn(a, b);
          value[i + step] = __fadd_rn(a, -b);
        }
    }
#pragma unroll 1
    for (int step = 1; step * chunk_elems < values; step *= 2) {
      const float sign = (lane & step) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i)
        value[i] = __fmaf_rn(value[i], sign, __shfl_xor_sync(device::all_lanes, value[i], step));
    }
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i) value[i] = __fmul_rn(value[i], factor);
  }

  __device__ __forceinline__ void limit() {
    constexpr float largest = largest_of_type(Dtype);
#pragma unroll
    for (uint32_t i = 0; i < chunk_elems; ++i)
      value[i] = value[i] > largest ? largest : value[i] < -largest ? -largest : value[i];
  }
};

// The maximum over `lanes` neighbouring lanes, a power of two; all of them get it.
__device__ __forceinline__ uint32_t most_of_lanes(uint32_t value, uint32_t lanes) {
#pragma unroll 1
  for (uint32_t step = 1; step < lanes; step *= 2)
    value = max(value, __shfl_xor_sync(device::all_lanes, value, static_cast<int>(step)));
  return value;
}

// `count` codes from `codes` on, one after the other from the lowest bit. Bits above those of a code may be set.
template <uint32_t bits>
__device__ __forceinline__ uint32_t packed(const uint32_t* codes, uint32_t count) {
  uint32_t word = codes[0];
#pragma unroll
  for (uint32_t i = 1; i < count; ++i) word = device::select_bits((1u << i * bits) - 1, word, codes[i] << i * bits);
  return word;
}

}  // namespace narrowcast::codec::grouped
