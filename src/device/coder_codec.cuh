// Codecs for kernels (BlockCodec in block_codec.cuh) made from a coder of blocks: of exact codecs without parameters,
// whose payloads have variable lengths.
#pragma once

#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::device {

// Coder: has values_bytes, Scratch, encode() and decode() of a BlockCodec. They become part of the kernel's code.
template <ncast_dtype Dtype, typename Coder>
struct InlineCodec {
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
template <ncast_dtype Dtype, typename Coder>
struct OutlinedCodec : InlineCodec<Dtype, Coder> {
  using typename InlineCodec<Dtype, Coder>::Scratch;
  __device__ __noinline__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    return Coder::encode(values, payload, scratch, lane);
  }
  __device__ __noinline__ static bool decode(const void* payload, uint32_t payload_bytes, void* values,
                                             Scratch& scratch, int lane) {
    return Coder::decode(payload, payload_bytes, values, scratch, lane);
  }
};

}  // namespace narrowcast::device
