// Copies indices from host memory to the GPU, in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace narrowcast::store::cuda {

// Two pinned buffers, which take turns, and one on the GPU. Calls follow each other, as those of a reader.
class IndexCopies {
 public:
  IndexCopies() = default;
  ~IndexCopies();
  IndexCopies(const IndexCopies&) = delete;
  IndexCopies& operator=(const IndexCopies&) = delete;

  cudaError_t allocate(size_t most_bytes);
  // The indices are not used after the call. *copied: in device memory, until the next call. Waits if the stream is two
  // calls behind.
  cudaError_t copy(const void* indices, size_t bytes, cudaStream_t stream, const void** copied);

 private:
  static constexpr int buffers = 2;
  size_t most_bytes_ = 0;
  char* pinned_ = nullptr;
  char* device_ = nullptr;
  cudaEvent_t copied_[buffers] = {};
  int next_ = 0;
};

}  // namespace narrowcast::store::cuda
