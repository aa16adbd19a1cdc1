// Sixteen adjacent values in the registers of a lane: two chunks. Neighbouring lanes hold neighbouring runs, so the
// lanes of a group are neighbours as well. Called by whole warps.
#pragma once

#include <cstdint>

#include "../../device/ptx/floats.cuh"
#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::grouped {

inline constexpr uint32_t run_elems = 2 * chunk_elems;
inline constexpr uint32_t infinity_bits = 0x7f800000;
inline constexpr uint32_t magnitude_mask = 0x7fffffff;

__device__ __forceinline__ uint32_t magnitude_bits(float value) { return __float_as_uint(value) & magnitude_mask; }
__device__ __forceinline__ bool is_finite(float value) { return magnitude_bits(value) < infinity_bits; }
// Whether a float is neither 0, subnormal, infinite nor NaN.
__device__ __forceinline__ bool is_normal(uint32_t bits) {
  return (bits & infinity_bits) != 0 && (bits & infinity_bits) != infinity_bits;
}

__device__ constexpr float largest_of_type(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT16 ? 65504 : dtype == NCAST_BFLOAT16 ? 0x1.fep127f : 0x1.fffffep127f;
}

// The maximum over `lanes` neighbouring lanes, a power of two; all of them get it.
__device__ __forceinline__ uint32_t most_of_lanes(uint32_t value, uint32_t lanes) {
#pragma unroll 1
  for (uint32_t step = 1; step < lanes; step *= 2)
    value = max(value, __shfl_xor_sync(device::all_lanes, value, static_cast<int>(step)));
  return value;
}

template <ncast_dtype Dtype>
struct Run {
  static constexpr uint32_t elems = block_bytes * 8 / (Dtype == NCAST_FLOAT32 ? 32 : 16);  // of a block
  static constexpr uint32_t count = elems / run_elems;                                     // in a block

  // The first half of the registers has chunk `swap` of the run, the second half the other one. With the swaps of
  // swap_of(), the loads and stores of neighbouring lanes use different banks of shared memory.
  float value[run_elems];
  uint32_t swap;

  // Rotations of many values exchange registers of lanes that would have different swaps.
  __device__ __forceinline__ static uint32_t swap_of(int lane, uint32_t rotate) {
    return rotate > 32 ? 0 : static_cast<uint32_t>(lane) >> (Dtype == NCAST_FLOAT32 ? 1 : 2) & 1;
  }
  // The number of the chunk in half `half` of the registers.
  __device__ __forceinline__ uint32_t chunk(uint32_t run, uint32_t half) const { return 2 * run + (half ^ swap); }

  __device__ __forceinline__ void load(const void* values, uint32_t run) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float* const to = value + half * chunk_elems;
      if constexpr (Dtype == NCAST_FLOAT32) {
        const uint4* const from = static_cast<const uint4*>(values) + 2 * chunk(run, half);
        const uint4 low = from[0], high = from[1];
        const uint32_t words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; ++i) to[i] = __uint_as_float(words[i]);
      } else {
        const uint4 all = static_cast<const uint4*>(values)[chunk(run, half)];
        const uint32_t words[] = {all.x, all.y, all.z, all.w};
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; i += 2) {
          if constexpr (Dtype == NCAST_BFLOAT16) {
            to[i] = __uint_as_float(words[i / 2] << 16);
            to[i + 1] = __uint_as_float(words[i / 2] & 0xffff0000);
          } else {
            const float2 pair = device::floats_of_halves(words[i / 2]);
            to[i] = pair.x;
            to[i + 1] = pair.y;
          }
        }
      }
    }
  }

  // NaN is stored with all bits set but the sign.
  __device__ __forceinline__ void store(void* values, uint32_t run) const {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const float* const from = value + half * chunk_elems;
      uint32_t words[chunk_elems];
      if constexpr (Dtype == NCAST_FLOAT32) {
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; ++i)
          words[i] = from[i] != from[i] ? magnitude_mask : __float_as_uint(from[i]);
        uint4* const to = static_cast<uint4*>(values) + 2 * chunk(run, half);
        to[0] = {words[0], words[1], words[2], words[3]};
        to[1] = {words[4], words[5], words[6], words[7]};
      } else {
#pragma unroll
        for (uint32_t i = 0; i < chunk_elems; i += 2)
          words[i / 2] = Dtype == NCAST_BFLOAT16 ? device::bfloat16s_of(from[i], from[i + 1])
                                                 : device::halves_of(from[i], from[i + 1]);
        static_cast<uint4*>(values)[chunk(run, half)] = {words[0], words[1], words[2], words[3]};
      }
    }
  }

  // Single values, for the few groups that need them. index: in the block.
  __device__ __forceinline__ static float load_value(const void* values, uint32_t index) {
    if constexpr (Dtype == NCAST_FLOAT32) return static_cast<const float*>(values)[index];
    const uint32_t bits = static_cast<const uint16_t*>(values)[index];
    return Dtype == NCAST_BFLOAT16 ? __uint_as_float(bits << 16) : device::floats_of_halves(bits).x;
  }
  __device__ __forceinline__ static void store_value(void* values, uint32_t index, float value) {
    if constexpr (Dtype == NCAST_FLOAT32) {
      static_cast<uint32_t*>(values)[index] = value != value ? magnitude_mask : __float_as_uint(value);
    } else {
      static_cast<uint16_t*>(values)[index] =
          static_cast<uint16_t>(Dtype == NCAST_BFLOAT16 ? device::bfloat16s_of(value, 0) : device::halves_of(value, 0));
    }
  }

  // The bits of the largest magnitude: above infinity_bits if there is a NaN.
  __device__ __forceinline__ uint32_t largest() const {
    float most[4] = {};
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) most[i % 4] = device::larger_magnitude(most[i % 4], value[i]);
    return __float_as_uint(device::larger_magnitude(device::larger_magnitude(most[0], most[1]),
                                                    device::larger_magnitude(most[2], most[3])));
  }
  __device__ __forceinline__ uint32_t largest_finite() const {
    uint32_t most = 0;
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i)
      if (is_finite(value[i])) most = max(most, magnitude_bits(value[i]));
    return most;
  }

  // The Walsh-Hadamard transform of `values` adjacent values of the warp. factor: rotation_factor(values).
  __device__ __forceinline__ void rotate(uint32_t values, float factor, int lane) {
#pragma unroll
    for (uint32_t step = 1; step < chunk_elems; step *= 2) {
      if (step >= values) break;
#pragma unroll
      for (uint32_t i = 0; i < run_elems; ++i)
        if ((i & step) == 0) {
          const float a = value[i], b = value[i + step];
          value[i] = __fadd_rn(a, b);
          value[i + step] = __fadd_rn(a, -b);
        }
    }
    if (values > chunk_elems) {
      const float sign = swap != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (uint32_t i = 0; i < chunk_elems; ++i) {
        const float a = value[i], b = value[i + chunk_elems];
        value[i] = __fmaf_rn(a, sign, b);
        value[i + chunk_elems] = __fmaf_rn(b, -sign, a);
      }
    }
#pragma unroll 1
    for (int step = 1; step * run_elems < values; step *= 2) {
      const float sign = (lane & step) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (uint32_t i = 0; i < run_elems; ++i)
        value[i] = __fmaf_rn(value[i], sign, __shfl_xor_sync(device::all_lanes, value[i], step));
    }
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) value[i] = __fmul_rn(value[i], factor);
  }

  // What decoding makes of a finite value beyond the largest of its type.
  __device__ __forceinline__ static float limited(float value) {
    constexpr float most = largest_of_type(Dtype);
    return value > most ? most : value < -most ? -most : value;
  }
  __device__ __forceinline__ void limit() {
#pragma unroll
    for (uint32_t i = 0; i < run_elems; ++i) value[i] = limited(value[i]);
  }
};

}  // namespace narrowcast::codec::grouped
