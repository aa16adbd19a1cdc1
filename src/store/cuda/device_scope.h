// The GPU that calls use.
#pragma once

#include <cuda_runtime_api.h>

namespace narrowcast::store::cuda {

// Makes a GPU current, and restores the previous one.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : error_(cudaGetDevice(&before_)) {
    if (error_ != cudaSuccess || before_ == device) return;
    error_ = cudaSetDevice(device);
    is_changed_ = error_ == cudaSuccess;
  }
  ~DeviceScope() {
    if (is_changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool is_changed_ = false;
  cudaError_t error_;
};

}  // namespace narrowcast::store::cuda
