#include <map>
#include <mutex>

#include "executor/cuda/generated/loaded_kernels.h"

namespace narrowcast::executor::cuda::generated {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LoadedKernels>> loaded;  // by cubin
};
// Never destroyed: communicators may be destroyed when the process ends.
Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

}  // namespace

cudaError_t LoadedKernels::load(const std::string& cubin, std::shared_ptr<LoadedKernels>* loaded) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<LoadedKernels>& known = all.loaded[cubin];
  *loaded = known.lock();
  if (*loaded != nullptr) return cudaSuccess;
  cudaLibrary_t library = nullptr;
  if (const cudaError_t error = cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0)) {
    all.loaded.erase(cubin);
    return error;
  }
  loaded->reset(new LoadedKernels(library));
  known = *loaded;
  std::erase_if(all.loaded, [](const auto& entry) { return entry.second.expired(); });
  return cudaSuccess;
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
