// The GPU that the CUDA calls of a thread use, and what they may do during captures.
#pragma once

#include <cuda_runtime_api.h>

namespace narrowcast::device {

// Makes a device current for the lifetime of the guard, then restores the previous device, even if there was none.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  // Why the device could not be made current. The next CUDA call reports it, too.
  cudaError_t error() const { return error_; }

 private:
  bool pushed_ = false;
  cudaError_t error_ = cudaSuccess;
};

// Allows this thread what CUDA forbids while any thread captures a graph, such as allocations. Not for calls that
// depend on the work of a capture.
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // exchanged with the previous mode
};

}  // namespace narrowcast::device
