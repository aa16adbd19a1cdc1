// Reading and writing frame headers on the host.
#pragma once

#include "codec/codec.h"
#include "codec/frame/layout.h"

namespace narrowcast::codec {

// Fails with NCAST_INVALID_ARGUMENT, naming `function`, if no frame can be made of these.
ncast_status check_frame_arguments(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// The header of a frame of checked arguments, without wire_bytes and checksum.
format::FrameHeader make_header(ncast_dtype dtype, ncast_codec codec, uint64_t elems, uint32_t flags);

// The fewest and the most bytes of a frame of checked arguments; equal for a fixed payload.
struct FrameBytes {
  uint64_t least;
  uint64_t most;
};
FrameBytes frame_bytes_of(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Parses and checks every field; fails with NCAST_CORRUPT, naming `function`. Writes all of *info except struct_bytes.
ncast_status read_header(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info);

}  // namespace narrowcast::codec
