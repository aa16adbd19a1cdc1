// Encoding of frames for the library itself.
#pragma once

#include "codec/host_codec.h"

namespace narrowcast::codec {

// ncast_encode for values of a call. context: of the first value.
ncast_status encode_frame(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, uint32_t flags,
                          const BlockContext& context, void* frame, size_t capacity, size_t* wire_bytes);

}  // namespace narrowcast::codec
