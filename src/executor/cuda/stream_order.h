// The order of a communicator's calls, which may be on different streams.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace narrowcast::executor::cuda {

// Calls that are captured into a graph and calls that run immediately are each in order.
class StreamOrder {
 public:
  StreamOrder() = default;
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;
  ~StreamOrder();

  cudaError_t create();

  // enter() makes the stream wait for the previous call. leave() records the call for the next enter(). One thread at a
  // time.
  cudaError_t enter(cudaStream_t stream);
  cudaError_t leave(cudaStream_t stream);
  // Whether the call since the last enter() is captured.
  bool captures() const { return current_ == &captured_; }

  // The others can be called from any thread.
  bool any_eager() const { return eager_.any; }
  bool any_captured() const { return captured_.any; }
  // Of the last call that runs immediately.
  cudaEvent_t last_eager() const { return eager_.event; }

 private:
  struct Last {
    cudaEvent_t event = nullptr;
    cudaStream_t stream = nullptr;
    unsigned long long capture = 0;  // id of the capture
    std::atomic<bool> any{false};    // whether there was a call
  };

  Last eager_, captured_;
  Last* current_ = nullptr;
};

}  // namespace narrowcast::executor::cuda
