#include "executor/cuda/stream_order.h"

namespace narrowcast::executor::cuda {

StreamOrder::~StreamOrder() {
  for (const Last* last : {&eager_, &captured_})
    if (last->event != nullptr) cudaEventDestroy(last->event);
}

cudaError_t StreamOrder::create() {
  for (Last* last : {&eager_, &captured_})
    if (const cudaError_t error = cudaEventCreateWithFlags(&last->event, cudaEventDisableTiming)) return error;
  return cudaSuccess;
}

// Calls of one capture are ordered within the graph. The user orders the launches of graphs.
cudaError_t StreamOrder::enter(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &capture);
  if (error != cudaSuccess) return error;
  const bool captures = status != cudaStreamCaptureStatusNone;
  current_ = captures ? &captured_ : &eager_;
  // cudaStreamPerThread is a different stream in each thread, but the same handle.
  const bool is_last = current_->stream == stream && stream != cudaStreamPerThread;
  const bool waits = current_->any && !is_last && (!captures || current_->capture == capture);
  current_->capture = capture;
  return waits ? cudaStreamWaitEvent(stream, current_->event) : cudaSuccess;
}

cudaError_t StreamOrder::leave(cudaStream_t stream) {
  current_->any = true;
  current_->stream = stream;
  return cudaEventRecord(current_->event, stream);
}

}  // namespace narrowcast::executor::cuda
