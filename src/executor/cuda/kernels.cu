#include "executor/cuda/kernels.h"

namespace narrowcast::executor::cuda {

namespace {

__global__ void do_nothing() {}

}  // namespace

cudaError_t warm_up_stream(cudaStream_t stream) {
  do_nothing<<<1, 1, 0, stream>>>();
  const cudaError_t error = cudaGetLastError();
  return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

cudaError_t load_kernels() {
  for (const auto load : {load_block_kernels, load_packet_moves, load_packet_reductions, load_short_packets})
    if (const cudaError_t error = load()) return error;
  return cudaSuccess;
}

}  // namespace narrowcast::executor::cuda
