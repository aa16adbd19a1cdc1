// The GPU that the CUDA calls of a thread use.
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

}  // namespace narrowcast::device
