// The backend's kernels, brought to a GPU before the first call.
#pragma once

#include <cuda_runtime_api.h>

namespace narrowcast::executor::cuda {

// They are launched early (device/early_launch.cuh), in graphs, too, as NCCL launches its symmetric kernels
// (nccl/src/enqueue.cc), and do not trigger the next launch: one that waits for other ranks never stands beside the
// next, which would take SMs from what the others wait for.

// Brings all of them to the current GPU, ready to be launched. Left to itself CUDA loads a kernel when it is first
// launched, and may wait for those that run; one of them that waits for another rank, which waits for the new one,
// would never end.
cudaError_t load_kernels();
// Of each file that has some.
cudaError_t load_block_kernels();
cudaError_t load_packet_moves();
cudaError_t load_packet_reductions();
cudaError_t load_short_packets();

template <typename... Arguments>
cudaError_t load_kernel(void (*kernel)(Arguments...)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace narrowcast::executor::cuda
