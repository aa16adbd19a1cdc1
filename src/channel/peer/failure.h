#pragma once

#include "narrowcast/types.h"

namespace narrowcast::channel {

// A sentence for a failed call of the CUDA runtime, whose cudaError_t it is: NCAST_CUDA_ERROR.
ncast_status cuda_failure(const char* what, int error);

}  // namespace narrowcast::channel
