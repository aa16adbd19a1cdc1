// Streams of ranks that share a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace narrowcast::testing {

// The first launch on a stream may wait for every kernel that runs on the GPU. Ranks that share one would wait for each
// other: launch on each stream before any kernel waits.
void warm_up_stream(cudaStream_t stream);

}  // namespace narrowcast::testing
