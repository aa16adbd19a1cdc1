// The device's part of early launches (early_launch.cuh).
#pragma once

namespace narrowcast::device {

// Waits until the writes of the stream's previous kernel are visible (griddepcontrol, PTX ISA 9.7.13.13). GPUs before
// compute capability 9.0 do not launch kernels early.
__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the stream's next kernel start, if it was launched early, when all CTAs of this one have called this in some
// thread or have ended.
__device__ __forceinline__ void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace narrowcast::device
