// Launches the kernels that move and reduce data by blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "executor/cuda/blocks/call.h"

namespace narrowcast::executor::cuda {

// Runs concurrently with the kernel of the call. ctas: the CTAs to use; 0 selects the copy engine.
cudaError_t launch_local_copy(const LocalCopy& copy, uint32_t ctas, cudaStream_t stream);
// The number of clusters of cluster_ctas CTAs that can run at the same time on the current GPU; 0 if it has none.
cudaError_t find_max_clusters(int* clusters);
// ctas: enough for every piece. Returns cudaErrorInvalidDeviceFunction if there is no kernel for call.codec and dtype.
cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, uint32_t ctas, cudaStream_t stream);
// clustered: in clusters, if their size divides `ctas`.
cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, uint32_t ctas, bool clustered,
                             cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
