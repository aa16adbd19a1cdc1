// The interface of a codec for device code. One warp encodes or decodes one block of one value type between two buffers
// in shared memory.
#pragma once

#include <concepts>
#include <cstdint>

#include "block_context.h"
#include "narrowcast/types.h"

namespace narrowcast::device {

// A codec for one value type. Kernels are templates over it; raw is a codec like any other.
//
//   dtype         the value type
//   values_bytes  size of a block of values in bytes, a multiple of 512
//   is_fixed      every payload has payload_bytes(parameters) bytes, a multiple of 16
//   is_identity   the payload is the values themselves; encode() and decode() are never called
//   is_exact      decode() restores the values exactly
//   Scratch       scratch of the warp in shared memory, 8-byte aligned; in collectives at most most_scratch_bytes
//                 (select/block_shape.h)
//
// encode(values, payload, scratch, lane): values and payload are shared memory, 16-byte aligned, values_bytes long; the
//   values are visible to the whole warp. Returns the payload's size in bytes to all lanes, a multiple of 16. A size of
//   values_bytes means that the block does not shrink and is stored raw; the content of `payload` is then undefined. A
//   fixed payload is never stored raw.
// decode(payload, payload_bytes, values, scratch, lane): payload_bytes is at most values_bytes; the payload may contain
//   anything and is 16-byte aligned. Returns the same result to all lanes: false if the payload does not follow the
//   format (the values are then unspecified). The caller synchronizes the warp before it reads the values.
//
// A codec with parameters has a type Parameters, constructed from an ncast_codec, as the next argument of both
// functions. A codec with `uses_context = true` has the block's BlockContext as the last argument of encode().
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

struct NoParameters {
  __host__ __device__ constexpr explicit NoParameters(ncast_codec) {}
};
// Constructing the parameters can take longer than a block does, so kernels construct them once.
template <typename Codec>
__host__ __device__ constexpr auto parameters_of(ncast_codec codec) {
  if constexpr (HasParameters<Codec>)
    return typename Codec::Parameters(codec);
  else
    return NoParameters(codec);
}
template <typename Codec>
using Parameters = decltype(parameters_of<Codec>(0));

template <typename Codec>
concept UsesContext = requires { requires static_cast<bool>(Codec::uses_context); };

// The context of a block in a frame.
template <BlockCodec Codec>
__device__ BlockContext context_in_frame(uint32_t block) {
  return {uint64_t{block} * block_elems<Codec>, 0, 0, 0};
}

// context: ignored unless UsesContext<Codec>.
template <BlockCodec Codec>
__device__ __forceinline__ uint32_t encode_block(const Parameters<Codec>& parameters, const BlockContext& context,
                                                 const void* values, void* payload, typename Codec::Scratch& scratch,
                                                 int lane) {
  if constexpr (HasParameters<Codec> && UsesContext<Codec>) {
    return Codec::encode(values, payload, scratch, lane, parameters, context);
  } else if constexpr (HasParameters<Codec>) {
    return Codec::encode(values, payload, scratch, lane, parameters);
  } else if constexpr (UsesContext<Codec>) {
    return Codec::encode(values, payload, scratch, lane, context);
  } else {
    return Codec::encode(values, payload, scratch, lane);
  }
}

template <BlockCodec Codec>
__device__ __forceinline__ bool decode_block(const Parameters<Codec>& parameters, const void* payload,
                                             uint32_t payload_bytes, void* values, typename Codec::Scratch& scratch,
                                             int lane) {
  if constexpr (HasParameters<Codec>) {
    return Codec::decode(payload, payload_bytes, values, scratch, lane, parameters);
  } else {
    return Codec::decode(payload, payload_bytes, values, scratch, lane);
  }
}

}  // namespace narrowcast::device
