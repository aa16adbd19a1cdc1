// The launch configuration of codec kernels on the current GPU, and their launch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/frame/cuda/launch.h"
#include "codec/kernel_table.h"
#include "device/early_launch.cuh"

namespace narrowcast::codec::cuda {

// The limits of the current device for a launch.
struct Machine {
  uint32_t ctas;        // one per SM, or the caller's limit if that is lower
  size_t shared_bytes;  // maximum per CTA

  // The number of warps per CTA that the shared memory allows, at most `most`.
  uint32_t warps(const Kernel& kernel, uint32_t most) const {
    return static_cast<uint32_t>(std::min<size_t>((shared_bytes - kernel.cta_bytes) / kernel.warp_bytes, most));
  }
};
inline cudaError_t find_machine(const Launch& launch, Machine* machine) {
  int device = 0, sms = 0, shared_bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  machine->ctas = launch.max_ctas != 0 ? std::min<uint32_t>(launch.max_ctas, sms) : sms;
  machine->shared_bytes = static_cast<size_t>(shared_bytes);
  return error;
}

struct KernelLaunch {
  uint32_t ctas, warps;
  size_t shared_bytes;
  cudaStream_t stream;
  bool early = false;  // may begin before the previous kernel of the stream has ended; ignored in graphs
};

// Raises a kernel's shared-memory limit and launches it. The types of the parameters must be exactly those of the
// kernel. During capture, `early` is ignored, because programs that inspect graphs may not expect programmatic edges.
template <typename... Parameters>
cudaError_t launch_kernel(const void* function, KernelLaunch launch, const Parameters&... parameters) {
  cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(launch.shared_bytes));
  if (error != cudaSuccess) return error;
  if (launch.early) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (error = cudaStreamIsCapturing(launch.stream, &capture); error != cudaSuccess) return error;
    launch.early = capture == cudaStreamCaptureStatusNone;
  }
  return device::launch(function, launch.ctas, launch.warps, launch.shared_bytes, launch.stream, launch.early,
                        parameters...);
}

}  // namespace narrowcast::codec::cuda
