#include "store/cuda/copy_ring.h"
#include "store/cuda/cuda_errors.h"

namespace narrowcast::store::cuda {

CopyRing::~CopyRing() {
  cudaFree(memory_);
  if (copies_ != nullptr) cudaStreamDestroy(copies_);
  if (begun_ != nullptr) cudaEventDestroy(begun_);
  for (uint32_t i = 0; i < buffers; ++i) {
    if (copied_[i] != nullptr) cudaEventDestroy(copied_[i]);
    if (released_[i] != nullptr) cudaEventDestroy(released_[i]);
  }
}

cudaError_t CopyRing::allocate(size_t buffer_bytes) {
  buffer_bytes_ = (buffer_bytes + alignment - 1) / alignment * alignment;
  RETURN_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(&memory_), buffers * buffer_bytes_));
  RETURN_CUDA_ERROR(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  RETURN_CUDA_ERROR(cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming));
  for (uint32_t i = 0; i < buffers; ++i) {
    RETURN_CUDA_ERROR(cudaEventCreateWithFlags(&copied_[i], cudaEventDisableTiming));
    RETURN_CUDA_ERROR(cudaEventCreateWithFlags(&released_[i], cudaEventDisableTiming));
  }
  return cudaSuccess;
}

cudaError_t CopyRing::begin(cudaStream_t stream) {
  next_ = 0;
  RETURN_CUDA_ERROR(cudaEventRecord(begun_, stream));
  return cudaStreamWaitEvent(copies_, begun_, 0);
}

cudaError_t CopyRing::begin_ahead(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  RETURN_CUDA_ERROR(cudaStreamIsCapturing(stream, &capture));
  was_captured_ = was_captured_ || capture != cudaStreamCaptureStatusNone;
  return was_captured_ ? begin(stream) : cudaSuccess;
}

cudaError_t CopyRing::copy(const void* from, size_t bytes, cudaStream_t stream, char** copied) {
  if (bytes > buffer_bytes_) return cudaErrorInvalidValue;
  const uint64_t place = next_ % buffers;
  if (next_ >= buffers) RETURN_CUDA_ERROR(cudaStreamWaitEvent(copies_, released_[place], 0));
  *copied = memory_ + place * buffer_bytes_;
  RETURN_CUDA_ERROR(cudaMemcpyAsync(*copied, from, bytes, cudaMemcpyHostToDevice, copies_));
  RETURN_CUDA_ERROR(cudaEventRecord(copied_[place], copies_));
  return cudaStreamWaitEvent(stream, copied_[place], 0);
}

cudaError_t CopyRing::release(cudaStream_t stream) { return cudaEventRecord(released_[next_++ % buffers], stream); }

}  // namespace narrowcast::store::cuda
