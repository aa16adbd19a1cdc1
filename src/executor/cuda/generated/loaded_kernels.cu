#include "executor/cuda/generated/loaded_kernels.h"
#include "executor/cuda/generated/shared_values.h"

namespace narrowcast::executor::cuda::generated {

cudaError_t LoadedKernels::load(const std::string& cubin, std::shared_ptr<LoadedKernels>* loaded) {
  // Never destroyed: communicators may be destroyed when the process ends.
  static auto* const all = new SharedValues<LoadedKernels>;  // by cubin
  return all->find_or_make(cubin, loaded, [&](std::shared_ptr<LoadedKernels>* made) {
    cudaLibrary_t library = nullptr;
    const cudaError_t error = cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error == cudaSuccess) made->reset(new LoadedKernels(library));
    return error;
  });
}

LoadedKernels::~LoadedKernels() { cudaLibraryUnload(library_); }

cudaError_t LoadedKernels::find(const char* name, const void** function) const {
  cudaKernel_t kernel = nullptr;
  if (const cudaError_t error = cudaLibraryGetKernel(&kernel, library_, name)) return error;
  *function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, *function);
}

}  // namespace narrowcast::executor::cuda::generated
