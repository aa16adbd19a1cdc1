// Errors of the CUDA runtime, as those of functions of the C API.
#pragma once

#include <cuda_runtime_api.h>

#include "status/cuda_driver.h"
#include "status/error.h"

namespace narrowcast::store::cuda {

inline ncast_status failed(const char* function, cudaError_t error) {
  return fail(NCAST_CUDA_ERROR, "%s: %s (%s)", function, cuda_error_text(error).c_str(), cudaGetErrorName(error));
}

}  // namespace narrowcast::store::cuda

#define RETURN_IF_CUDA_FAILED(function, call)                   \
  if (const cudaError_t error_ = (call); error_ != cudaSuccess) \
  return ::narrowcast::store::cuda::failed(function, error_)
#define RETURN_CUDA_ERROR(call) \
  if (const cudaError_t error_ = (call); error_ != cudaSuccess) return error_
