// The CUDA driver's functions that the drop-in needs, found when a communicator is first used: programs without NCCL get
// none. Handles and device addresses are void*, results CUresult's numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::nccl {

struct Driver {
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDevicePrimaryCtxRetain)(void** context, int device);
  int (*cuCtxPushCurrent_v2)(void* context);
  int (*cuCtxPopCurrent_v2)(void** context);
  int (*cuMemAlloc_v2)(void** pointer, size_t bytes);
  int (*cuMemFree_v2)(void* pointer);
  int (*cuMemAllocAsync)(void** pointer, size_t bytes, void* stream);
  int (*cuMemFreeAsync)(void* pointer, void* stream);
  int (*cuMemcpyDtoDAsync_v2)(void* to, const void* from, size_t bytes, void* stream);
  int (*cuMemcpyHtoDAsync_v2)(void* to, const void* from, size_t bytes, void* stream);
  int (*cuMemcpyDtoHAsync_v2)(void* to, const void* from, size_t bytes, void* stream);
  int (*cuStreamCreate)(void** stream, unsigned flags);
  int (*cuStreamDestroy_v2)(void* stream);
  int (*cuStreamQuery)(void* stream);
  int (*cuStreamSynchronize)(void* stream);
  int (*cuStreamWaitEvent)(void* stream, void* event, unsigned flags);
  int (*cuStreamGetCaptureInfo_v2)(void* stream, int* status, uint64_t* id, void** graph, const void** dependencies,
                                   size_t* dependency_count);
  int (*cuThreadExchangeStreamCaptureMode)(int* mode);
  int (*cuEventCreate)(void** event, unsigned flags);
  int (*cuEventDestroy_v2)(void* event);
  int (*cuEventRecord)(void* event, void* stream);
  int (*cuEventSynchronize)(void* event);
  int (*cuLaunchHostFunc)(void* stream, void (*function)(void*), void* argument);
};

// NULL: there is no driver.
const Driver* driver();

constexpr int cuda_not_ready = 600;          // CUDA_ERROR_NOT_READY
constexpr unsigned stream_non_blocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned event_without_time = 2;   // CU_EVENT_DISABLE_TIMING

// Makes a device's primary context the thread's current one while it lives. driver() is not NULL.
class OnDevice {
 public:
  explicit OnDevice(int ordinal);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  bool pushed_ = false;
};

// While it lives, this thread may allocate though another stream is being captured. driver() is not NULL.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED, then what it was before
};

// The capture that a stream is part of, or 0. driver() is not NULL.
uint64_t capture_of(void* stream);

}  // namespace narrowcast::nccl
