// Launches gather kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "store/cuda/gather_arguments.h"
#include "store/cuda/kernels.h"

namespace narrowcast::store::cuda {

// What a launch needs to know about a GPU.
struct GatherMachine {
  uint32_t sms;
  size_t shared_bytes;  // of a CTA, at most
};
cudaError_t find_gather_machine(GatherMachine* machine);

// Allows a kernel to use all shared memory: the limit is one for all readers, whose shapes differ. Called before
// launches.
cudaError_t prepare_gather(const GatherKernel& kernel, const GatherMachine& machine);

// Launches a kernel on up to `sms` SMs.
cudaError_t launch_gather(const GatherKernel& kernel, const GatherArguments& arguments, uint32_t sms,
                          cudaStream_t stream);

}  // namespace narrowcast::store::cuda
