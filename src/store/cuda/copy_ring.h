// Host memory on its way to the GPU: the copy engine fills buffers while kernels read the previous ones.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace narrowcast::store::cuda {

// Calls follow each other, as those of a reader. They allocate nothing and can be captured.
class CopyRing {
 public:
  CopyRing() = default;
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  cudaError_t allocate(size_t buffer_bytes);
  // Begins a sequence of copies for kernels on `stream`, after the work on it.
  cudaError_t begin(cudaStream_t stream);
  // The same for memory that no work on the stream writes: copies only wait for free buffers, and so overlap with
  // earlier work. Not in captures, nor after one: a graph uses the buffers whenever it is launched.
  cudaError_t begin_ahead(cudaStream_t stream);
  // Copies `bytes` of registered memory, at most those of a buffer; what is enqueued on `stream` next can read them.
  cudaError_t copy(const void* from, size_t bytes, cudaStream_t stream, char** copied);
  // The kernels that read the last copy are enqueued.
  cudaError_t release(cudaStream_t stream);

 private:
  static constexpr uint32_t buffers = 3;
  static constexpr size_t alignment = 256;  // of buffers, as of allocations
  size_t buffer_bytes_ = 0;
  char* memory_ = nullptr;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t begun_ = nullptr, copied_[buffers] = {}, released_[buffers] = {};
  uint64_t next_ = 0;  // in the sequence
  bool was_captured_ = false;
};

}  // namespace narrowcast::store::cuda
