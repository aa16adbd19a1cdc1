// The functions of the CUDA driver that the drop-in calls. The driver is loaded when a communicator is first used, so
// programs without NCCL do not load it. Handles and device addresses are void*, results are CUresult.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::nccl {

struct Driver {
  int (*cuDriverGetVersion)(int* version);
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDeviceGetName)(char* name, int bytes, int device);
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
  int (*cuEventQuery)(void* event);
  int (*cuEventElapsedTime)(float* milliseconds, void* begin, void* end);
  int (*cuLaunchHostFunc)(void* stream, void (*function)(void*), void* argument);
};

// NULL: no driver was found.
const Driver* driver();

constexpr int cuda_not_ready = 600;          // CUDA_ERROR_NOT_READY
constexpr unsigned stream_non_blocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned event_without_time = 2;   // CU_EVENT_DISABLE_TIMING

// Makes the primary context of a device current on this thread. Requires driver() != NULL.
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

// Lets this thread allocate memory while another stream is being captured. Requires driver() != NULL.
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode();
  ~RelaxedCaptureMode();
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; exchanged with the previous mode
};

// The id of the capture that a stream is part of; 0: none. Requires driver() != NULL.
uint64_t capture_id(void* stream);

}  // namespace narrowcast::nccl
