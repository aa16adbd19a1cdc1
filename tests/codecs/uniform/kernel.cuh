// The codec `uniform` on the GPU; binding.cc describes the payload and computes the same bytes.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/block_codec.cuh"
#include "device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::uniform {

template <ncast_dtype Dtype>
  requires(Dtype == NCAST_FLOAT32 || Dtype == NCAST_BFLOAT16)
struct Codec {
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = 4096;
  static constexpr bool is_fixed = true;
  static constexpr bool is_identity = false;
  static constexpr bool is_exact = false;
  static constexpr bool uses_context = true;
  struct Scratch {};

  struct Parameters {
    __host__ __device__ explicit Parameters(ncast_codec codec)
        : bits(static_cast<int>(get(codec, bits_field))), top(1 << (bits - 1)), dither_bits(get(codec, dither_field)) {}
    __device__ double dither() const {
      const float dither = __uint_as_float(dither_bits);
      return dither > no_dither ? dither : 0;
    }
    __device__ int nan() const { return -top; }
    __device__ int infinity() const { return top - 1; }
    __device__ double step(float largest) const { return static_cast<double>(largest) / (top - 2); }
    int bits;
    int top;
    uint32_t dither_bits;
  };
  __host__ __device__ static uint32_t payload_bytes(const Parameters& parameters) {
    return header_bytes + elems * static_cast<uint32_t>(parameters.bits) / 8;
  }

  __device__ static uint32_t encode(const void* values, void* payload, Scratch&, int lane, Parameters parameters,
                                    const device::BlockContext& context) {
    float largest = 0;
    for (uint32_t i = lane; i < elems; i += 32) {
      const float value = load(values, i);
      if (isfinite(value)) largest = fmaxf(largest, fabsf(value));
    }
    for (int step = 16; step != 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(device::all_lanes, largest, step));
    auto* const words = static_cast<uint32_t*>(payload);
    if (lane < header_bytes / 4) words[lane] = lane == 0 ? __float_as_uint(largest) : 0;
    // 32 values fill `bits` words: each lane packs whole groups of them.
    const double step = parameters.step(largest);
    for (uint32_t group = lane; group < elems / 32; group += 32) {
      uint32_t* const to = words + header_bytes / 4 + group * parameters.bits;
      uint64_t pending = 0;
      int count = 0;
      for (uint32_t i = 0; i < 32; ++i) {
        const int code = code_of(parameters, load(values, group * 32 + i), step,
                                 parameters.dither() * random_number(context, group * 32 + i));
        pending |= (static_cast<uint64_t>(code) & ((1u << parameters.bits) - 1)) << count;
        count += parameters.bits;
        if (count < 32) continue;
        to[(i + 1) * parameters.bits / 32 - 1] = static_cast<uint32_t>(pending);
        pending >>= 32;
        count -= 32;
      }
    }
    __syncwarp();
    return header_bytes + elems * parameters.bits / 8;
  }

  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, Scratch&, int lane,
                                Parameters parameters) {
    const auto* const words = static_cast<const uint32_t*>(payload);
    const float largest = __uint_as_float(words[0]);
    if (payload_bytes != header_bytes + elems * parameters.bits / 8 || !isfinite(largest) || signbit(largest))
      return false;
    const double step = parameters.step(largest);
    for (uint32_t group = lane; group < elems / 32; group += 32) {
      const uint32_t* from = words + header_bytes / 4 + group * parameters.bits;
      uint64_t pending = 0;
      int count = 0;
      for (uint32_t i = 0; i < 32; ++i) {
        if (count < parameters.bits) {
          pending |= static_cast<uint64_t>(*from++) << count;
          count += 32;
        }
        int code = static_cast<int>(pending & ((1u << parameters.bits) - 1));
        pending >>= parameters.bits;
        count -= parameters.bits;
        if (code >= parameters.top) code -= 2 * parameters.top;
        double value = code * step;
        if (code == parameters.nan()) value = __uint_as_float(0x7fc00000);
        if (abs(code) == parameters.infinity()) value = __uint_as_float(code > 0 ? 0x7f800000 : 0xff800000);
        store(value, values, group * 32 + i);
      }
    }
    return true;
  }

 private:
  static constexpr int header_bytes = 16;
  static constexpr uint32_t elems = values_bytes / device::value_bytes_of(Dtype);

  __device__ static float load(const void* values, uint32_t index) {
    if constexpr (Dtype == NCAST_FLOAT32) return static_cast<const float*>(values)[index];
    return __uint_as_float(uint32_t{static_cast<const uint16_t*>(values)[index]} << 16);
  }
  __device__ static void store(double value, void* values, uint32_t index) {
    const auto single = static_cast<float>(value);
    if constexpr (Dtype == NCAST_FLOAT32) {
      static_cast<float*>(values)[index] = isnan(single) ? __uint_as_float(0x7fc00000) : single;
    } else {
      uint32_t bits = __float_as_uint(single);
      bits = isnan(single) ? 0x7fc00000 : bits + 0x7fff + (bits >> 16 & 1);
      static_cast<uint16_t*>(values)[index] = static_cast<uint16_t>(bits >> 16);
    }
  }
  __device__ static int code_of(const Parameters& parameters, float value, double step, double random) {
    if (isnan(value)) return parameters.nan();
    if (isinf(value)) return value > 0 ? parameters.infinity() : -parameters.infinity();
    if (step == 0) return 0;
    const int most = parameters.top - 2;
    return min(max(static_cast<int>(nearbyint(value / step + random)), -most), most);
  }
};

template <ncast_dtype Dtype>
using SharedCodec = Codec<Dtype>;

}  // namespace narrowcast::codec::uniform
