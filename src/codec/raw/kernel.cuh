// The codec `raw` on the GPU. A payload consists of the values, so kernels copy it and never call these functions.
#pragma once

#include <cstdint>

#include "../../device/block_codec.cuh"

namespace narrowcast::codec::raw {

template <ncast_dtype Dtype>
struct Codec {
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = 4096;
  static constexpr bool is_fixed = true;
  static constexpr bool is_identity = true;
  static constexpr bool is_exact = true;
  struct Scratch {};
  __host__ __device__ static uint32_t payload_bytes(device::NoParameters) { return values_bytes; }
  __device__ static uint32_t encode(const void*, void*, Scratch&, int) { return values_bytes; }
  __device__ static bool decode(const void*, uint32_t, void*, Scratch&, int) { return false; }
};

template <ncast_dtype Dtype>
using SharedCodec = Codec<Dtype>;

}  // namespace narrowcast::codec::raw
