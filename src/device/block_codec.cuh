// What device code needs of a codec. One warp codes one block of one value type between two buffers in shared memory.
#pragma once

#include <concepts>
#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::device {

// A codec for one value type. Kernels are templated on it, and raw is one like any other.
//
//   dtype         the value type
//   values_bytes  of a block, a multiple of 512
//   is_fixed      every payload has payload_bytes(codec) bytes, a multiple of 16 and less than values_bytes
//   is_identity   a payload is the values themselves; encode() and decode() are never called
//   is_exact      decode() returns every bit that encode() was given
//   Scratch       shared memory that the warp works in, 4-byte aligned
//
// encode(values, payload, scratch, lane): values and payload are shared memory, 16-byte aligned, values_bytes long; the
//   warp sees the values. Returns the payload's bytes in all lanes, a multiple of 16; values_bytes means that the block
//   does not shrink and is stored raw, in which case `payload` holds nothing of use. A fixed payload never is.
// decode(payload, payload_bytes, values, scratch, lane): any payload of at most values_bytes, 16-byte aligned. Returns
//   the same in all lanes: false when the payload does not follow the format (values are then unspecified). The warp
//   synchronises before it reads the values.
//
// A codec with parameters has a type Parameters, made from the call's ncast_codec, which both functions take last.
template <typename Codec>
concept BlockCodec = requires {
  { Codec::dtype } -> std::convertible_to<ncast_dtype>;
  { Codec::values_bytes } -> std::convertible_to<uint32_t>;
  { Codec::is_fixed } -> std::convertible_to<bool>;
  { Codec::is_identity } -> std::convertible_to<bool>;
  { Codec::is_exact } -> std::convertible_to<bool>;
  typename Codec::Scratch;
};

constexpr uint32_t value_bytes_of(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_FLOAT16:
    case NCAST_BFLOAT16: return 2;
    case NCAST_INT32:
    case NCAST_UINT32:
    case NCAST_FLOAT32: return 4;
    case NCAST_INT64:
    case NCAST_UINT64:
    case NCAST_FLOAT64: return 8;
    default: return 1;
  }
}
template <BlockCodec Codec>
inline constexpr int value_bytes = value_bytes_of(Codec::dtype);
template <BlockCodec Codec>
inline constexpr int block_elems = Codec::values_bytes / value_bytes<Codec>;

template <typename Codec>
concept HasParameters = requires { typename Codec::Parameters; };

template <BlockCodec Codec>
__device__ __forceinline__ uint32_t encode_block(const ncast_codec& codec, const void* values, void* payload,
                                                 typename Codec::Scratch& scratch, int lane) {
  if constexpr (HasParameters<Codec>) {
    return Codec::encode(values, payload, scratch, lane, typename Codec::Parameters(codec));
  } else {
    return Codec::encode(values, payload, scratch, lane);
  }
}

template <BlockCodec Codec>
__device__ __forceinline__ bool decode_block(const ncast_codec& codec, const void* payload, uint32_t payload_bytes,
                                             void* values, typename Codec::Scratch& scratch, int lane) {
  if constexpr (HasParameters<Codec>) {
    return Codec::decode(payload, payload_bytes, values, scratch, lane, typename Codec::Parameters(codec));
  } else {
    return Codec::decode(payload, payload_bytes, values, scratch, lane);
  }
}

}  // namespace narrowcast::device
