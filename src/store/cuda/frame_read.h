// Reads ranges of a tensor that consists of consecutive frames, which the GPU may read from mapped host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "narrowcast/cuda.h"
#include "store/cuda/frame_read_arguments.h"
#include "store/cuda/launch.h"

namespace narrowcast::store::cuda {

// Enqueues reads. They allocate nothing and can be captured.
class FrameReadKernel {
 public:
  // Prepares the kernel of a tensor for the current GPU, so that launches cost little. Errors: INVALID_ARGUMENT,
  // UNSUPPORTED, CUDA_ERROR; the message begins with `function`.
  ncast_status prepare(const char* function, ncast_dtype dtype, ncast_codec codec, uint64_t frame_elems,
                       uint64_t elems);
  // As in TensorFrames. Before the first read.
  void set_memory(const uint64_t* offsets, FrameReadCounts* counts) {
    tensor_.offsets = offsets;
    tensor_.counts = counts;
  }
  // How many bytes of a frame come before the payload of block `block`, if there are so many; 0: it is the first block.
  // frame: in host memory, where it may be damaged.
  uint64_t bytes_before(const uint8_t* frame, uint64_t frame_bytes, bool is_last, uint64_t block) const;
  uint32_t block_bytes() const { return block_bytes_; }
  // sms: the most that it may use, at least 1. early: the frames are not written by work on the stream, so the read may
  // begin while the stream's previous read ends.
  cudaError_t launch(const FrameRead& read, uint32_t sms, cudaStream_t stream, bool early) const;

 private:
  TensorFrames tensor_ = {};
  const void* function_ = nullptr;
  uint32_t block_bytes_ = 0, most_warps_ = 0;
  uint32_t warp_bytes_ = 0, shared_bytes_ = 0;  // of a warp without payloads, and of a CTA
  GatherMachine machine_ = {};
};

}  // namespace narrowcast::store::cuda
