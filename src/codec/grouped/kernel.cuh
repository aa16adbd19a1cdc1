// The codecs that quantise groups of values on the GPU, in the form that kernels expect of a codec.
#pragma once

#include <cstdint>

#include "decode.cuh"
#include "encode.cuh"

namespace narrowcast::codec::grouped {

// The BlockCodec (device/block_codec.cuh) of all these codecs for one value type: what it encodes to is known at run
// time only, and the same in all threads. So all codecs share their kernels.
template <ncast_dtype Dtype>
  requires(Dtype == NCAST_FLOAT32 || Dtype == NCAST_FLOAT16 || Dtype == NCAST_BFLOAT16)
struct Codec {
  static constexpr ncast_dtype dtype = Dtype;
  static constexpr uint32_t values_bytes = 4096;
  static constexpr bool is_fixed = true;
  static constexpr bool is_identity = false;
  static constexpr bool is_exact = false;
  static constexpr bool uses_context = true;
  struct Scratch {};

  struct Parameters {
    __host__ __device__ explicit Parameters(ncast_codec codec) : codec(codec) {}
    ncast_codec codec;
  };
  __host__ __device__ static uint32_t payload_bytes(ncast_codec codec) {
    return coding_of(codec).payload_bytes(values_bytes / (Dtype == NCAST_FLOAT32 ? 4 : 2));
  }

  __device__ static uint32_t encode(const void* values, void* payload, Scratch&, int lane, Parameters parameters,
                                    const device::BlockContext& context) {
    return encode_shared(values, payload, lane, parameters.codec, context.first_elem, context.call, context.rank,
                         context.stage);
  }
  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, Scratch&, int lane,
                                Parameters parameters) {
    return payload_bytes == Codec::payload_bytes(parameters.codec) &&
           decode_shared(payload, values, lane, parameters.codec);
  }

 private:
  // Not inlined, so that the kernels of a type share one copy of the code, and only calls of it need its registers.
  __device__ __noinline__ static uint32_t encode_shared(const void* values, void* payload, int lane, ncast_codec codec,
                                                        uint64_t first_elem, uint32_t call, uint32_t rank,
                                                        uint32_t stage) {
    BlockEncoder<Dtype>(coding_of(codec), {first_elem, call, rank, stage}, values, payload, lane).encode();
    __syncwarp();
    return payload_bytes(codec);
  }
  __device__ __noinline__ static bool decode_shared(const void* payload, void* values, int lane, ncast_codec codec) {
    return BlockDecoder<Dtype>(coding_of(codec), payload, values, lane).decode();
  }
};

template <ncast_dtype Dtype>
using SharedCodec = Codec<Dtype>;

}  // namespace narrowcast::codec::grouped
