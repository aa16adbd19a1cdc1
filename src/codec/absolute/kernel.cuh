// The codec `abs` on the GPU, in the form that kernels expect of a codec.
#pragma once

#include "block.cuh"

namespace narrowcast::codec::absolute {

// The BlockCodec (device/block_codec.cuh) for each value type that `abs` supports.
template <ncast_dtype Dtype>
  requires(is_supported(Dtype))
struct Codec {
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = Block<Dtype>::values_bytes;
  static constexpr bool is_fixed = false;
  static constexpr bool is_identity = false;
  static constexpr bool is_exact = false;
  struct Scratch {};
  using Parameters = Step;

  // Not inlined, so that all calls in a kernel share one copy of the code, and only they need its registers.
  __device__ __noinline__ static uint32_t encode_shared(const void* values, void* payload, int lane, Step step) {
    __builtin_assume(__isShared(values) && __isShared(payload));
    return Block<Dtype>::encode(values, payload, lane, step);
  }
  __device__ __noinline__ static bool decode_shared(const void* payload, uint32_t bytes, void* values, int lane,
                                                    Step step) {
    __builtin_assume(__isShared(values) && __isShared(payload));
    return Block<Dtype>::decode(payload, bytes, values, lane, step);
  }

  __device__ static uint32_t encode(const void* values, void* payload, Scratch&, int lane, Parameters step) {
    return encode_shared(values, payload, lane, step);
  }
  __device__ static bool decode(const void* payload, uint32_t bytes, void* values, Scratch&, int lane,
                                Parameters step) {
    return decode_shared(payload, bytes, values, lane, step);
  }
};

template <ncast_dtype Dtype>
using SharedCodec = Codec<Dtype>;

}  // namespace narrowcast::codec::absolute
