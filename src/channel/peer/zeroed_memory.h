#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace narrowcast::channel {

// Device memory, zero when this returns; cudaFree it. No other stream is waited for, nor the device, which cannot be
// while a stream of its captures.
cudaError_t allocate_zeroed(void** memory, size_t bytes);
template <typename T>
cudaError_t allocate_zeroed(T** memory, size_t bytes) {
  return allocate_zeroed(reinterpret_cast<void**>(memory), bytes);
}

}  // namespace narrowcast::channel
