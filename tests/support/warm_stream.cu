#include <cuda_runtime.h>

#include "support/warm_stream.h"

namespace narrowcast::testing {
namespace {

__global__ void do_nothing() {}

}  // namespace

void warm_up_stream(cudaStream_t stream) {
  do_nothing<<<1, 1, 0, stream>>>();
  cudaStreamSynchronize(stream);
}

}  // namespace narrowcast::testing
