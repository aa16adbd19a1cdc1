#include <cuda_runtime_api.h>

#include "channel/peer/failure.h"
#include "status/error.h"

namespace narrowcast::channel {

ncast_status cuda_failure(const char* what, int error) {
  return fail(NCAST_CUDA_ERROR, "%s: %s", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
}

}  // namespace narrowcast::channel
