// The arguments of the kernels that read frames: plain structs, shared by host and device code.
#pragma once

#include <cstdint>

#include "codec/frame/layout.h"
#include "narrowcast/cuda.h"

namespace narrowcast::store::cuda {

// What the reads of a tensor have found, in device memory.
struct FrameReadCounts {
  unsigned long long payload_bytes;  // sum of those that were read
  ncast_device_status status;        // NCAST_CORRUPT after a block that could not be decoded
};

// A tensor as frames that begin at multiples of format::alignment.
struct TensorFrames {
  const uint64_t* offsets;  // device memory: where each frame begins, and where the last one ends
  uint64_t count;
  uint64_t frame_bytes;   // of the values of all frames but the last one
  uint64_t tensor_bytes;  // of all values
  uint32_t frame_blocks;  // of all frames but the last one
  // The headers of all frames but the last one, and that of the last one. wire_bytes: the size of the frame, or the
  // offset of its payloads if their sizes vary.
  format::FrameHeader headers[2];
  FrameReadCounts* counts;
};

// Frames in device or mapped host memory, of which whole lines of 128 bytes are readable. The offsets count from both
// pointers.
struct FrameSource {
  const char* headers;                  // and block ends
  const char* payloads;                 // of which there are
  uint64_t payload_begin, payload_end;  // only these bytes
};

// A read of the bytes [begin, end) of the tensor.
struct FrameRead {
  FrameSource from;
  uint64_t begin, end;
  char* out;  // of byte `begin`; aligned to a value
};

// The parameter of the kernels.
struct FrameReadArguments {
  TensorFrames tensor;
  FrameRead read;
  uint64_t first_block;  // blocks are numbered as if all frames had frame_blocks
  uint32_t block_count;
  // Shared memory of a warp for payloads: a multiple of 128, and at least 128 more than the values of a block.
  uint32_t payload_room;
};

}  // namespace narrowcast::store::cuda
