// Checks of frame headers in kernels, and the report of corrupt data.
#pragma once

#include <cstdint>

#include "codec/frame/layout.h"
#include "narrowcast/cuda.h"

namespace narrowcast::codec::cuda {

// Stores NCAST_CORRUPT. All threads store the same word, so the race between them does not matter.
__device__ inline void report_corrupt(ncast_device_status* status) { *status = NCAST_CORRUPT; }

// Whether a frame's header has the values that the caller expects, and the frame is not longer than frame_bytes.
__device__ inline bool header_matches(const format::FrameHeader& header, const format::FrameHeader& expected,
                                      uint64_t frame_bytes) {
  return header.magic == expected.magic && header.version == expected.version && header.codec == expected.codec &&
         header.dtype == expected.dtype && header.elems == expected.elems &&
         header.block_elems == expected.block_elems && header.blocks == expected.blocks &&
         (header.flags & ~(NCAST_CHECKSUM | NCAST_MORE)) == 0 &&
         (header.checksum == 0 || (header.flags & NCAST_CHECKSUM) != 0) && header.parameters == expected.parameters &&
         (header.reserved[0] | header.reserved[1]) == 0 && header.wire_bytes <= frame_bytes &&
         header.wire_bytes % format::alignment == 0;
}

}  // namespace narrowcast::codec::cuda
