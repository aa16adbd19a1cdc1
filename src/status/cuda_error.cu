#include <cuda_runtime_api.h>

#include "status/cuda_driver.h"

namespace narrowcast {

std::string cuda_error_text(int error) {
  const auto code = static_cast<cudaError_t>(error);
  if (code == cudaErrorInsufficientDriver || code == cudaErrorCallRequiresNewerDriver) {
    int cuda_version = 0;
    if (cudaDriverGetVersion(&cuda_version) != cudaSuccess) cuda_version = 0;
    return rejected_driver_text(cuda_version);
  }
  if (code == cudaErrorCompatNotSupportedOnDevice)
    return std::string(cudaGetErrorString(code)) +
           " (forward compatibility is for data-centre GPUs: update the driver to " + std::to_string(min_driver) +
           " or newer)";
  return cudaGetErrorString(code);
}

}  // namespace narrowcast
