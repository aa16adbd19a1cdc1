// Cubins that this process has loaded. Communicators with the same plan share one copy of its code: ranks that share a
// GPU would otherwise compete for its instruction caches, which took up to 46% more time.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

namespace narrowcast::executor::cuda::generated {

class LoadedKernels {
 public:
  // Loads a cubin, unless one with the same content is loaded. Any thread.
  static cudaError_t load(const std::string& cubin, std::shared_ptr<LoadedKernels>* loaded);
  ~LoadedKernels();

  // Finds a kernel and loads it on the current GPU: see kernels.h.
  cudaError_t find(const char* name, const void** function) const;

 private:
  explicit LoadedKernels(cudaLibrary_t library) : library_(library) {}

  cudaLibrary_t library_;
};

}  // namespace narrowcast::executor::cuda::generated
