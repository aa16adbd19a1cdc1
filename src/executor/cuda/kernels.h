// Loads the backend's kernels before the first call.
#pragma once

#include <cuda_runtime_api.h>

namespace narrowcast::executor::cuda {

// Kernels are launched with programmatic stream serialization (device/early_launch.cuh), also in graphs, as NCCL
// launches its symmetric kernels (nccl/src/enqueue.cc). They do not trigger the launch of the next kernel: that kernel
// would occupy SMs that other ranks may need to make progress.

// Loads all kernels on the current GPU. By default CUDA loads a kernel at its first launch, which may wait for running
// kernels. That would deadlock if a running kernel waits for another rank that waits for the new kernel.
cudaError_t load_kernels();
// The kernels of each source file.
cudaError_t load_block_kernels();
cudaError_t load_packet_moves();
cudaError_t load_packet_reductions();
cudaError_t load_short_packets();
cudaError_t load_scaled_copies();

template <typename... Arguments>
cudaError_t load_kernel(void (*kernel)(Arguments...)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace narrowcast::executor::cuda
