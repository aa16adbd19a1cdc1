// A user's codec on the GPU, in the form that kernels expect of a codec. Its CUDA header (narrowcast/user_codec.h)
// precedes this file in kernels, and defines the functions that are declared here.
#pragma once

#include <cstdint>

#include "device/block_codec.cuh"
#include "narrowcast/user_codec.h"

__device__ uint32_t ncast_user_encode(const ncast_user_block& block, const ncast_user_context& context,
                                      const void* values, void* payload, int lane);
__device__ bool ncast_user_decode(const ncast_user_block& block, const void* payload, uint32_t payload_bytes,
                                  void* values, int lane);
__device__ uint32_t ncast_user_payload_bytes(const ncast_user_block& block);  // only of fixed payloads

namespace narrowcast::codec::user {

// Settings: what the description says, for one value type, and read_parameters(codec, parameters).
template <typename Settings>
struct Codec {
  static constexpr ncast_dtype dtype = Settings::dtype;
  static constexpr uint32_t values_bytes = Settings::block_bytes;
  static constexpr bool is_fixed = Settings::is_fixed;
  static constexpr bool is_identity = false;
  static constexpr bool is_exact = Settings::is_exact;
  static constexpr bool uses_context = true;
  struct Scratch {};
  struct Parameters {
    __device__ explicit Parameters(ncast_codec of_call) : codec(of_call) {}
    ncast_codec codec;
  };

  __device__ static uint32_t payload_bytes(Parameters parameters) {
    return ncast_user_payload_bytes(block_of(parameters.codec));
  }

  __device__ static uint32_t encode(const void* values, void* payload, Scratch&, int lane, Parameters parameters,
                                    const device::BlockContext& context) {
    const uint32_t bytes = encode_shared(values, payload, lane, parameters.codec, context);
    __syncwarp();
    if (is_fixed) return bytes;
    // A size that is not valid must not reach a peer, which can take any block raw.
    return bytes != 0 && bytes <= values_bytes && bytes % 16 == 0 ? bytes : values_bytes;
  }
  __device__ static bool decode(const void* payload, uint32_t bytes, void* values, Scratch&, int lane,
                                Parameters parameters) {
    return decode_shared(payload, bytes, values, lane, parameters.codec);
  }

 private:
  __device__ static ncast_user_block block_of(ncast_codec codec) {
    ncast_user_block block = {
        Settings::dtype, values_bytes, values_bytes / device::value_bytes_of(Settings::dtype), {}};
    Settings::read_parameters(codec, block.parameters);
    return block;
  }
  // Not inlined, so that all calls in a kernel share one copy of the code, and only they need its registers.
  __device__ __noinline__ static uint32_t encode_shared(const void* values, void* payload, int lane, ncast_codec codec,
                                                        const device::BlockContext& context) {
    const ncast_user_context given = {context.first_elem, context.call, context.rank, context.stage};
    return ncast_user_encode(block_of(codec), given, values, payload, lane);
  }
  __device__ __noinline__ static bool decode_shared(const void* payload, uint32_t bytes, void* values, int lane,
                                                    ncast_codec codec) {
    return ncast_user_decode(block_of(codec), payload, bytes, values, lane);
  }
};

}  // namespace narrowcast::codec::user
