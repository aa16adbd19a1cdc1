#include <cstring>

#include "store/cuda/index_copies.h"

namespace narrowcast::store::cuda {

IndexCopies::~IndexCopies() {
  cudaFreeHost(pinned_);
  cudaFree(device_);
  for (cudaEvent_t event : copied_)
    if (event != nullptr) cudaEventDestroy(event);
}

cudaError_t IndexCopies::allocate(size_t most_bytes) {
  most_bytes_ = most_bytes;
  cudaError_t error = cudaHostAlloc(reinterpret_cast<void**>(&pinned_), buffers * most_bytes, cudaHostAllocDefault);
  if (error == cudaSuccess) error = cudaMalloc(reinterpret_cast<void**>(&device_), most_bytes);
  for (cudaEvent_t& event : copied_)
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  return error;
}

cudaError_t IndexCopies::copy(const void* indices, size_t bytes, cudaStream_t stream, const void** copied) {
  if (bytes > most_bytes_) return cudaErrorInvalidValue;
  char* const pinned = pinned_ + static_cast<size_t>(next_) * most_bytes_;
  // The copy from this buffer, two calls ago.
  cudaError_t error = cudaEventSynchronize(copied_[next_]);
  if (error != cudaSuccess) return error;
  std::memcpy(pinned, indices, bytes);
  error = cudaMemcpyAsync(device_, pinned, bytes, cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = cudaEventRecord(copied_[next_], stream);
  next_ = (next_ + 1) % buffers;
  *copied = device_;
  return error;
}

}  // namespace narrowcast::store::cuda
