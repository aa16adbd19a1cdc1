// The codec `dense` on the GPU, in the form that kernels expect of a codec.
#pragma once

#include <cstdint>

#include "block.cuh"

namespace narrowcast::codec::dense {

// The BlockCodec (device/block_codec.cuh) for each value type that `dense` supports. The parameter is the dtype,
// because nvcc cannot mangle kernel names that contain a template argument of class type.
template <ncast_dtype Dtype>
  requires(value_type(Dtype).value_bytes != 0)
struct Codec {
  using Coder = Block<value_type(Dtype)>;
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = Coder::values_bytes;
  static constexpr bool is_fixed = false;
  static constexpr bool is_identity = false;
  static constexpr bool is_exact = true;
  using Scratch = typename Coder::Scratch;
  __device__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    return Coder::encode(values, payload, scratch, lane);
  }
  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, Scratch& scratch, int lane) {
    return Coder::decode(payload, payload_bytes, values, scratch, lane);
  }
};

// For kernels whose warps have different roles: all roles share one copy of the code, which is not inlined, so that
// only calls of the codec need its registers.
template <ncast_dtype Dtype>
  requires(value_type(Dtype).value_bytes != 0)
struct SharedCodec : Codec<Dtype> {
  using typename Codec<Dtype>::Coder;
  using typename Codec<Dtype>::Scratch;
  __device__ __noinline__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    return Coder::encode(values, payload, scratch, lane);
  }
  __device__ __noinline__ static bool decode(const void* payload, uint32_t payload_bytes, void* values,
                                             Scratch& scratch, int lane) {
    return Coder::decode(payload, payload_bytes, values, scratch, lane);
  }
};

}  // namespace narrowcast::codec::dense
