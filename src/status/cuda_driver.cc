#include "status/cuda_driver.h"

namespace narrowcast {

std::string rejected_driver_text(int cuda_version) {
  const std::string needed = "Narrowcast needs driver " + std::to_string(min_driver) + " or newer";
  if (cuda_version == 0) return "no NVIDIA driver was found (libcuda.so.1); " + needed;
  const std::string major = std::to_string(cuda_version / 1000);
  const std::string package = "cuda-compat-" + std::to_string(cuda_major) + "-0";
  return "the driver supports CUDA " + major + "." + std::to_string(cuda_version % 1000 / 10) + ", and " + needed +
         " (CUDA " + std::to_string(cuda_major) + "); on data-centre GPUs with an older driver, install NVIDIA's " +
         "forward-compatibility package (" + package + ") and put its folder first in LD_LIBRARY_PATH";
}

}  // namespace narrowcast
