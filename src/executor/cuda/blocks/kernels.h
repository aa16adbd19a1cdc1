// Launches of the kernels that move and reduce data by blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "executor/cuda/blocks/call.h"

namespace narrowcast::executor::cuda {

__host__ __device__ inline bool is_aligned(const OwnCopy& own) {
  return (reinterpret_cast<uintptr_t>(own.from) | reinterpret_cast<uintptr_t>(own.to)) % 16 == 0;
}

// Runs beside the kernel of a call. ctas: the CTAs it may use; 0 selects the copy engine.
cudaError_t launch_own_copy(const OwnCopy& own, uint32_t ctas, cudaStream_t stream);
// With call.codec. ctas: at least those of every piece. cudaErrorInvalidDeviceFunction: no kernel codes values of dtype
// so.
cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, uint32_t ctas, cudaStream_t stream);
cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, uint32_t ctas, cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
