#include "channel/peer/zeroed_memory.h"

namespace narrowcast::channel {

cudaError_t allocate_zeroed(void** memory, size_t bytes) {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaMalloc(memory, bytes);
  if (error != cudaSuccess) return error;
  error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(*memory, 0, bytes, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return error;
}

}  // namespace narrowcast::channel
