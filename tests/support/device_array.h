// An array in device memory, for tests of the codecs on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "doctest/doctest.h"

namespace narrowcast::tests {

#define REQUIRE_CUDA(call) REQUIRE_MESSAGE((call) == cudaSuccess, cudaGetErrorString(cudaGetLastError()))

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& from) : size_(from.size()) {
    REQUIRE_CUDA(cudaMalloc(&data_, size_ * sizeof(T)));
    REQUIRE_CUDA(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    // The copy may still be under way, and streams need not wait for the default stream.
    REQUIRE_CUDA(cudaStreamSynchronize(nullptr));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> to(size_);
    REQUIRE_CUDA(cudaMemcpy(to.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

}  // namespace narrowcast::tests
