// Reading and writing frame headers on the host.
#pragma once

#include "codec/frame/layout.h"
#include "codec/window/format.h"
#include "narrowcast/codec.h"

namespace narrowcast::codec {

// The codec that a frame gets: `window` asked for a type that it does not handle is `raw`.
inline ncast_codec effective_codec(ncast_dtype dtype, ncast_codec codec) {
  return format::window::value_type(dtype).value_bytes == 0 ? NCAST_CODEC_RAW : codec;
}

// Fails with NCAST_INVALID_ARGUMENT, naming `function`, when a frame cannot be made of these.
ncast_status check_frame_arguments(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// A header without wire_bytes and checksum, from checked arguments.
format::FrameHeader make_header(ncast_dtype dtype, ncast_codec codec, uint64_t elems, uint32_t flags);

// Parses and checks every field; fails with NCAST_CORRUPT, naming `function`.
ncast_status read_header(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info);

}  // namespace narrowcast::codec
