#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace narrowcast::channel {

// Allocates device memory that is zero when the function returns. Free it with cudaFree. Does not synchronize other
// streams or the device, which would fail while a stream is capturing.
cudaError_t allocate_zeroed(void** memory, size_t bytes);
template <typename T>
cudaError_t allocate_zeroed(T** memory, size_t bytes) {
  return allocate_zeroed(reinterpret_cast<void**>(memory), bytes);
}

}  // namespace narrowcast::channel
