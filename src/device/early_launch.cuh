// Early launch of kernels (programmatic dependent launch, CUDA C++ Programming Guide). A kernel that is launched early
// starts when the stream's previous kernel has called cudaTriggerProgrammaticLaunchCompletion, or when its CTAs have
// ended. The previous kernel's writes may not be visible yet, so every thread calls wait_for_stream() before it loads
// or stores.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/ptx/stream_order.cuh"

namespace narrowcast::device {

// Launches a __global__ function or cudaKernel_t, early or in stream order. The parameters must have exactly the types
// of the kernel's parameters.
template <typename... Parameters>
cudaError_t launch(const void* function, uint32_t ctas, uint32_t warps, size_t shared_bytes, cudaStream_t stream,
                   bool early, const Parameters&... parameters) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = ctas;
  config.blockDim = warps * 32;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  const void* addresses[] = {&parameters...};
  return cudaLaunchKernelExC(&config, function, const_cast<void**>(addresses));
}

template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), uint32_t ctas, uint32_t warps, size_t shared_bytes,
                         cudaStream_t stream, const std::type_identity_t<Parameters>&... parameters) {
  return launch(reinterpret_cast<const void*>(kernel), ctas, warps, shared_bytes, stream, true, parameters...);
}

}  // namespace narrowcast::device
