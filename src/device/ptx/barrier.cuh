// Barriers in shared memory (mbarrier, PTX ISA 9.7.13.15) between warps with different roles. A wait orders the writes
// of the arriving threads before the reads of the waiting warp.
#pragma once

#include <cstdint>

#include "device/ptx/bulk_copy.cuh"

namespace narrowcast::device {

// One thread initializes the barrier, before a __syncthreads(). Each phase ends after `arrivals` calls of
// barrier_arrive().
__device__ inline void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Each arriving thread calls it after its writes.
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
               : "memory");
}

// The whole warp waits for the end of a phase. parity: 0 for the first phase, 1 for the second, then alternating.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "again:\n"
#ifdef NARROWCAST_HAS_BULK_COPY
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"  // blocks for a while before it returns false
#else
      "mbarrier.test_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
#endif
      "@!ended bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
  __syncwarp();
}

}  // namespace narrowcast::device
