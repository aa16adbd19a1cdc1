// Streams of ranks that share a GPU.
#pragma once

#include <cuda_runtime.h>

namespace narrowcast::testing {

static __global__ void do_nothing() {}

// The first launch on a stream may wait for every kernel that runs on the GPU. Ranks that share one would wait for each
// other: launch on each stream before any kernel waits.
inline void warm_up_stream(cudaStream_t stream) {
  do_nothing<<<1, 1, 0, stream>>>();
  cudaStreamSynchronize(stream);
}

}  // namespace narrowcast::testing
