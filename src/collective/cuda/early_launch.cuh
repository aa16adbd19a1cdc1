// Kernels that are launched while what the stream's kernel before them has written still comes to memory, for which every thread
// waits by wait_for_stream() before it loads or stores (programmatic dependent launch). That kernel's CTAs have ended by then: one
// that waits for other ranks never stands beside the next, which would take SMs from what the others wait for. In graphs, too, as
// NCCL launches its symmetric kernels (nccl/src/enqueue.cc).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace narrowcast::collective::cuda {

template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), uint32_t ctas, uint32_t warps, size_t shared_bytes,
                         cudaStream_t stream, const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = ctas;
  config.blockDim = warps * 32;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// GPUs before compute capability 9.0 have no such launches.
__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

}  // namespace narrowcast::collective::cuda
