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
  struct Scratch {
    device::BlockContext context;
  };

  struct Parameters {
    __host__ __device__ constexpr explicit Parameters(ncast_codec codec) : Parameters(coding_of(codec)) {}
    __host__ __device__ constexpr explicit Parameters(const Coding& coding)
        : coding(coding), payload_bytes(coding.payload_bytes(elems)) {}
    PackedCoding coding;
    uint32_t payload_bytes;
  };
  __host__ __device__ static uint32_t payload_bytes(Parameters parameters) { return parameters.payload_bytes; }

  __device__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane,
                                    Parameters parameters, const device::BlockContext& context) {
    if (lane == 0) scratch.context = context;
    __syncwarp();
    const PackedCoding coding = parameters.coding;
    switch (coding.element()) {
      case Element::int8: encode_as<Element::int8>(values, payload, scratch, lane, coding); break;
      case Element::uint8: encode_as<Element::uint8>(values, payload, scratch, lane, coding); break;
      case Element::int6: encode_as<Element::int6>(values, payload, scratch, lane, coding); break;
      case Element::int4: encode_as<Element::int4>(values, payload, scratch, lane, coding); break;
      case Element::int2: encode_as<Element::int2>(values, payload, scratch, lane, coding); break;
      case Element::e4m3:
      case Element::e5m2: encode_as<Element::e4m3>(values, payload, scratch, lane, coding); break;
      case Element::e2m3:
      case Element::e3m2: encode_as<Element::e2m3>(values, payload, scratch, lane, coding); break;
      default: encode_as<Element::e2m1>(values, payload, scratch, lane, coding);
    }
    __syncwarp();
    return parameters.payload_bytes;
  }
  __device__ static bool decode(const void* payload, uint32_t bytes, void* values, Scratch&, int lane,
                                Parameters parameters) {
    return bytes == parameters.payload_bytes && decode_shared(payload, values, lane, parameters.coding);
  }

 private:
  static constexpr uint32_t elems = values_bytes / (Dtype == NCAST_FLOAT32 ? 4 : 2);

  // Not inlined, so that all calls in a kernel share one copy of the code, and only they need its registers. Elements
  // whose codes have the same place in a payload share the function of the first one.
  template <Element element>
  __device__ __noinline__ static void encode_as(const void* values, void* payload, const Scratch& scratch, int lane,
                                                PackedCoding coding) {
    __builtin_assume(__isShared(values) && __isShared(payload) && __isShared(&scratch));
    BlockEncoder<Dtype, element>(coding.coding(), &scratch.context, values, payload, lane).encode();
  }
  __device__ __noinline__ static bool decode_shared(const void* payload, void* values, int lane, PackedCoding packed) {
    __builtin_assume(__isShared(values) && __isShared(payload));
    return BlockDecoder<Dtype>(packed.coding(), payload, values, lane).decode();
  }
};

template <ncast_dtype Dtype>
using SharedCodec = Codec<Dtype>;

}  // namespace narrowcast::codec::grouped
