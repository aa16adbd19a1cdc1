// How codec kernels fill the current GPU, and how they are launched.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/frame/cuda/launch.h"
#include "codec/kernel_table.h"
#include "device/early_launch.cuh"

namespace narrowcast::codec::cuda {

// What the current device offers a launch.
struct Machine {
  uint32_t ctas;        // that run at once, one an SM, or fewer if the caller asked for fewer
  size_t shared_bytes;  // of a CTA
  bool launches_early;  // supports programmatic dependent launch

  // Warps of a CTA that have shared memory; at most `most`.
  uint32_t warps(const Kernel& kernel, uint32_t most) const {
    return static_cast<uint32_t>(std::min<size_t>((shared_bytes - kernel.cta_bytes) / kernel.warp_bytes, most));
  }
};
inline cudaError_t find_machine(const Launch& launch, Machine* machine) {
  int device = 0, sms = 0, shared_bytes = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  machine->launches_early = major >= 9;
  machine->ctas = launch.max_ctas != 0 ? std::min<uint32_t>(launch.max_ctas, sms) : sms;
  machine->shared_bytes = static_cast<size_t>(shared_bytes);
  return error;
}

struct KernelLaunch {
  uint32_t ctas, warps;
  size_t shared_bytes;
  cudaStream_t stream;
  bool early = false;  // before the kernel that precedes it in the stream has ended; not in graphs (launch_kernel())
};

// Raises a kernel's shared-memory limit and launches it with its parameters, which must have the kernel's own types. An
// early launch in a graph waits like any other: programs that read a graph's edges expect no others.
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
