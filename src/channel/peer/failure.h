#pragma once

#include "narrowcast/types.h"

namespace narrowcast::channel {

// Sets the error message for a failed call of the CUDA runtime and returns NCAST_CUDA_ERROR. what: what failed. error:
// a cudaError_t.
ncast_status cuda_failure(const char* what, int error);

}  // namespace narrowcast::channel
