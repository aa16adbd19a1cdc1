// Barriers of some warps of a CTA (barrier.cta, PTX ISA 9.7.13.1). They order the memory accesses of these warps.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// `barrier`: 1 to 15; 0 is that of __syncthreads(). All threads of `warps` warps call it.
__device__ __forceinline__ void sync_warps(uint32_t barrier, uint32_t warps) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(warps * 32) : "memory");
}

// The same. Returns whether `condition` holds in all threads.
__device__ __forceinline__ bool all_of_warps(uint32_t barrier, uint32_t warps, bool condition) {
  uint32_t all;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.u32 own, %3, 0;\n"
      "barrier.cta.red.and.pred all, %1, %2, own;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}"
      : "=r"(all)
      : "r"(barrier), "r"(warps * 32), "r"(static_cast<uint32_t>(condition))
      : "memory");
  return all != 0;
}

}  // namespace narrowcast::device
