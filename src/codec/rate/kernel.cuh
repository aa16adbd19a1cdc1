// The codec `rate` on the GPU, in the form that kernels expect of a codec.
#pragma once

#include "block.cuh"

namespace narrowcast::codec::rate {

// The BlockCodec (device/block_codec.cuh) for each value type that `rate` supports.
template <ncast_dtype Dtype>
  requires(value_type(Dtype).bits != 0)
struct Codec {
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = block_bytes;
  static constexpr bool is_fixed = true;
  static constexpr bool is_identity = false;
  static constexpr bool is_exact = false;
  struct Scratch {};
  using Parameters = Rate;
  __host__ __device__ static uint32_t payload_bytes(Parameters rate) {
    return rate.payload_bytes(value_type(Dtype).quads());
  }

  // Not inlined, so that all calls in a kernel share one copy of the code, and only they need its registers.
  __device__ __noinline__ static uint32_t encode_shared(const void* values, void* payload, int lane, Rate rate) {
    __builtin_assume(__isShared(values) && __isShared(payload));
    return Block<Dtype>::encode(values, payload, lane, rate);
  }
  __device__ __noinline__ static bool decode_shared(const void* payload, uint32_t bytes, void* values, int lane,
                                                    Rate rate) {
    __builtin_assume(__isShared(values) && __isShared(payload));
    return Block<Dtype>::decode(payload, bytes, values, lane, rate);
  }

  __device__ static uint32_t encode(const void* values, void* payload, Scratch&, int lane, Parameters rate) {
    return encode_shared(values, payload, lane, rate);
  }
  __device__ static bool decode(const void* payload, uint32_t bytes, void* values, Scratch&, int lane,
                                Parameters rate) {
    return decode_shared(payload, bytes, values, lane, rate);
  }
};

template <ncast_dtype Dtype>
using SharedCodec = Codec<Dtype>;

}  // namespace narrowcast::codec::rate
