// Uses the driver's context stack. The runtime API cannot restore "no device": in a thread that has used no device,
// cudaSetDevice() would initialize GPU 0, which takes several hundred MB of its memory.
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <map>
#include <mutex>

#include "device/device_guard.h"

namespace narrowcast::device {
namespace {

struct Driver {
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 primary_context_retain = nullptr;
  PFN_cuCtxGetCurrent_v4000 context_get = nullptr;
  PFN_cuCtxPushCurrent_v4000 context_push = nullptr;
  PFN_cuCtxPopCurrent_v4000 context_pop = nullptr;

  bool is_complete() const {
    return device_get != nullptr && primary_context_retain != nullptr && context_get != nullptr &&
           context_push != nullptr && context_pop != nullptr;
  }
};

template <typename Function>
void find(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) *function = reinterpret_cast<Function>(found);
}

const Driver& driver() {
  static const Driver instance = [] {
    Driver found;
    find("cuDeviceGet", &found.device_get);
    find("cuDevicePrimaryCtxRetain", &found.primary_context_retain);
    find("cuCtxGetCurrent", &found.context_get);
    find("cuCtxPushCurrent", &found.context_push);
    find("cuCtxPopCurrent", &found.context_pop);
    return found;
  }();
  return instance;
}

// Retained once for each device, until the process exits. NULL: not available.
CUcontext primary_context(int ordinal) {
  static std::mutex& mutex = *new std::mutex;
  static auto& contexts = *new std::map<int, CUcontext>;
  if (!driver().is_complete()) return nullptr;
  const std::lock_guard lock(mutex);
  CUcontext& context = contexts[ordinal];
  CUdevice device = 0;
  if (context == nullptr && driver().device_get(&device, ordinal) == CUDA_SUCCESS)
    driver().primary_context_retain(&context, device);
  return context;
}

// Without one, the runtime says that GPU 0 is current.
bool has_current_context() {
  CUcontext context = nullptr;
  return driver().is_complete() && driver().context_get(&context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == device && has_current_context()) return;
  const CUcontext context = primary_context(device);
  pushed_ = context != nullptr && driver().context_push(context) == CUDA_SUCCESS;
  if (!pushed_) error_ = cudaSetDevice(device);
}

DeviceGuard::~DeviceGuard() {
  CUcontext context = nullptr;
  if (pushed_) driver().context_pop(&context);
}

}  // namespace narrowcast::device
