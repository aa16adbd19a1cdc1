#include "nccl/libraries/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <mutex>

#include "nccl/libraries/symbols.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {
namespace {

constexpr int max_devices = 64;

const Driver* load_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    log(Level::info, "the CUDA driver cannot be loaded: %s", dlerror());
    return nullptr;
  }
  auto* const found = new Driver;  // never freed: calls may come until the process ends
  SymbolTable functions(library);
#define FIND(name) functions.find(&found->name, #name)
  FIND(cuDriverGetVersion);
  FIND(cuDeviceGet);
  FIND(cuDeviceGetName);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxPushCurrent_v2);
  FIND(cuCtxPopCurrent_v2);
  FIND(cuMemAlloc_v2);
  FIND(cuMemFree_v2);
  FIND(cuMemAllocAsync);
  FIND(cuMemFreeAsync);
  FIND(cuMemcpyDtoDAsync_v2);
  FIND(cuMemcpyHtoDAsync_v2);
  FIND(cuMemcpyDtoHAsync_v2);
  FIND(cuStreamCreate);
  FIND(cuStreamDestroy_v2);
  FIND(cuStreamQuery);
  FIND(cuStreamSynchronize);
  FIND(cuStreamWaitEvent);
  FIND(cuStreamGetCaptureInfo_v2);
  FIND(cuThreadExchangeStreamCaptureMode);
  FIND(cuEventCreate);
  FIND(cuEventDestroy_v2);
  FIND(cuEventRecord);
  FIND(cuEventSynchronize);
  FIND(cuEventQuery);
  FIND(cuEventElapsedTime);
  FIND(cuLaunchHostFunc);
#undef FIND
  if (functions.missing() == nullptr) return found;
  log(Level::warn, "the CUDA driver has no %s: all calls are forwarded to NCCL", functions.missing());
  delete found;
  return nullptr;
}

// Retained once per device, until the process ends.
void* primary_context(int ordinal) {
  static std::mutex mutex;
  static std::array<void*, max_devices> contexts{};
  if (ordinal < 0 || ordinal >= max_devices) return nullptr;
  const std::lock_guard lock(mutex);
  void*& context = contexts[static_cast<size_t>(ordinal)];
  int device = 0;
  if (context == nullptr && driver()->cuDeviceGet(&device, ordinal) == 0)
    driver()->cuDevicePrimaryCtxRetain(&context, device);
  return context;
}

}  // namespace

const Driver* driver() {
  static const Driver* const the = load_driver();
  return the;
}

DeviceGuard::DeviceGuard(int ordinal) {
  void* const context = primary_context(ordinal);
  pushed_ = context != nullptr && driver()->cuCtxPushCurrent_v2(context) == 0;
}

DeviceGuard::~DeviceGuard() {
  void* context;
  if (pushed_) driver()->cuCtxPopCurrent_v2(&context);
}

RelaxedCaptureMode::RelaxedCaptureMode() { driver()->cuThreadExchangeStreamCaptureMode(&mode_); }
RelaxedCaptureMode::~RelaxedCaptureMode() { driver()->cuThreadExchangeStreamCaptureMode(&mode_); }

uint64_t capture_id(void* stream) {
  int status = 0;
  uint64_t id = 0;
  // The query fails for the legacy stream while another stream captures. It is not captured itself then.
  if (driver()->cuStreamGetCaptureInfo_v2(stream, &status, &id, nullptr, nullptr, nullptr) != 0) return 0;
  return status == 0 ? 0 : id;
}

}  // namespace narrowcast::nccl
