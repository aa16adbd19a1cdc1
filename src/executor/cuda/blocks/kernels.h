// Launches the kernels that move and reduce data by blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "executor/cuda/blocks/pieces.h"

namespace narrowcast::executor::cuda {

// Loads a kernel on the current GPU (executor/cuda/kernels.h), and allows it as much shared memory as a CTA can have.
cudaError_t load_block_kernel(const void* function);
// Runs concurrently with the kernel of the call. ctas: the CTAs to use; 0 selects the copy engine.
cudaError_t launch_local_copy(const LocalCopy& copy, uint32_t ctas, cudaStream_t stream);
// The number of clusters of cluster_ctas CTAs that can run at the same time on the current GPU, if a CTA has this much
// shared memory; 0 if it has no clusters.
cudaError_t find_max_clusters(uint32_t shared_bytes, int* clusters);
// Returns cudaErrorInvalidDeviceFunction if there is no kernel for call.codec and dtype.
cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, const Grid& grid, cudaStream_t stream);
cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, const Grid& grid, cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
