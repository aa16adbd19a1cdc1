// The sum with a factor of a rank that is alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "executor/factor.h"
#include "narrowcast/types.h"

namespace narrowcast::executor::cuda {

// to[i] = factor * from[i], of a floating-point type. The buffers are equal or do not overlap.
cudaError_t launch_scaled_copy(const void* from, void* to, uint64_t count, ncast_dtype dtype, const Factor& factor,
                               cudaStream_t stream);

}  // namespace narrowcast::executor::cuda
