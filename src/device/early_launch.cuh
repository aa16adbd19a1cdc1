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

// Whether the current GPU runs code of this library that was compiled for compute capability 9.0 or newer. Older code,
// which newer GPUs run if the library contains no other, does not wait for the stream, so it is never launched early,
// and not in clusters either. Any thread.
bool runs_hopper_code();

// Launches a __global__ function or cudaKernel_t in clusters of cluster_ctas CTAs, a divisor of `ctas`. early: early if
// the GPU runs_hopper_code(); otherwise, and without it, in stream order. The parameters must have exactly the types of
// the kernel's parameters.
template <typename... Parameters>
cudaError_t launch_clusters(const void* function, uint32_t ctas, uint32_t cluster_ctas, uint32_t warps,
                            size_t shared_bytes, cudaStream_t stream, bool early, const Parameters&... parameters) {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = ctas;
  config.blockDim = warps * 32;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (early && runs_hopper_code()) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster_ctas != 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster_ctas;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  }
  const void* addresses[] = {&parameters...};
  return cudaLaunchKernelExC(&config, function, const_cast<void**>(addresses));
}

template <typename... Parameters>
cudaError_t launch(const void* function, uint32_t ctas, uint32_t warps, size_t shared_bytes, cudaStream_t stream,
                   bool early, const Parameters&... parameters) {
  return launch_clusters(function, ctas, 1, warps, shared_bytes, stream, early, parameters...);
}

template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), uint32_t ctas, uint32_t warps, size_t shared_bytes,
                         cudaStream_t stream, const std::type_identity_t<Parameters>&... parameters) {
  return launch(reinterpret_cast<const void*>(kernel), ctas, warps, shared_bytes, stream, true, parameters...);
}

}  // namespace narrowcast::device
