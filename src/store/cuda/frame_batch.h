// Decodes consecutive frames of a table together: kernels of single frames, which are short, would leave SMs idle
// between each other.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "narrowcast/cuda.h"

namespace narrowcast::store::cuda {

inline constexpr uint32_t most_batch_frames = 64;

// Frames in GPU memory, and where their values belong. An argument of a kernel.
struct FrameBatch {
  const char* frames;
  char* values;          // end to end
  uint64_t frame_elems;  // of all but the last frame
  uint64_t last_elems;
  uint32_t value_bytes;
  ncast_dtype dtype;
  uint32_t count;
  uint32_t offsets[most_batch_frames + 1];  // of the frames, from `frames`, and their end
};

// The tables of a batch, in GPU memory.
struct FrameTables {
  const void* frames[most_batch_frames];
  size_t frame_bytes[most_batch_frames];
  void* values[most_batch_frames];
  size_t capacities[most_batch_frames];
  size_t value_bytes[most_batch_frames];
  ncast_device_status statuses[most_batch_frames];
};

// Calls follow each other, as those of a reader. They allocate nothing and can be captured.
class FrameDecoder {
 public:
  FrameDecoder() = default;
  ~FrameDecoder();
  FrameDecoder(const FrameDecoder&) = delete;
  FrameDecoder& operator=(const FrameDecoder&) = delete;

  cudaError_t allocate();
  // Enqueues the decoding of frames that were encoded with `codec`, on at most `sms` SMs. *damage, in GPU memory,
  // becomes NCAST_CORRUPT if a frame of an earlier batch could not be decoded.
  ncast_status decode(const char* function, const FrameBatch& batch, ncast_codec codec, uint32_t sms,
                      ncast_device_status* damage, cudaStream_t stream);
  // The same for all batches so far.
  cudaError_t report_damage(ncast_device_status* damage, cudaStream_t stream);

 private:
  FrameTables* tables_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace narrowcast::store::cuda
