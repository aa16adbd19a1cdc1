// Reading and writing frame headers on the host.
#pragma once

#include "codec/codec.h"
#include "codec/frame/layout.h"

namespace narrowcast::codec {

// Checks whether a frame with these arguments is possible. Error: INVALID_ARGUMENT; the message begins with `function`.
ncast_status check_frame_arguments(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Makes a frame header without wire_bytes and checksum. The arguments must have been checked.
format::FrameHeader make_header(ncast_dtype dtype, ncast_codec codec, uint64_t elems, uint32_t flags);

// The minimum and maximum size of a frame; equal for a fixed payload. The arguments must have been checked.
struct FrameBytes {
  uint64_t least;
  uint64_t most;
};
FrameBytes frame_bytes_of(ncast_dtype dtype, ncast_codec codec, uint64_t elems);

// Parses a header and checks every field. Writes all members of *info except struct_bytes. Errors: INVALID_ARGUMENT,
// CORRUPT; the message begins with `function`.
ncast_status read_header(const char* function, const void* frame, size_t frame_bytes, ncast_frame_info* info);

}  // namespace narrowcast::codec
