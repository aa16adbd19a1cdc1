// How kernels of tests count what is wrong: in GpuRank::counts.
#pragma once

#include <cstdint>

namespace narrowcast::testing {

// Each thread has its own word, because not every machine supports atomic operations on host memory.
__device__ inline void count_up(uint32_t* counts, uint32_t more) {
  counts[blockIdx.x * blockDim.x + threadIdx.x] += more;
}

}  // namespace narrowcast::testing
