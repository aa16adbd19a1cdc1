#include "executor/cuda/kernels.h"

namespace narrowcast::executor::cuda {

cudaError_t load_kernels() {
  for (const auto load :
       {load_block_kernels, load_packet_moves, load_packet_reductions, load_short_packets, load_scaled_copies})
    if (const cudaError_t error = load()) return error;
  return cudaSuccess;
}

}  // namespace narrowcast::executor::cuda
