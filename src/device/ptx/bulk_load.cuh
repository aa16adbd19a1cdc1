// Bulk copies from global to shared memory (cp.async.bulk, PTX ISA 9.7.9.25) that single threads start, and for which
// any threads of the CTA wait. A barrier in shared memory, of 8 bytes, counts them: one load after the other.
#pragma once

#include <cstdint>

#include "barrier.cuh"

namespace narrowcast::device {

// The functions below do nothing useful otherwise.
#ifdef NARROWCAST_HAS_BULK_COPY
inline constexpr bool has_bulk_loads = true;
#else
inline constexpr bool has_bulk_loads = false;
#endif

// One thread initializes the barrier. The others may use it after they have waited for this thread.
__device__ inline void set_up_bulk_loads(uint64_t* barrier) {
  barrier_init(barrier, 1);
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Called by one thread, after all threads have waited for the load before, and have finished reading the previous
// content of `to`. bytes: a multiple of 16, or 0; both addresses are 16-byte aligned.
__device__ inline void start_bulk_load(uint64_t* barrier, void* to, const void* from, uint32_t bytes) {
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
  if (bytes == 0) return;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
#endif
}

// The whole warp waits. parity: 0 for the first load, 1 for the second, then alternating.
__device__ inline void wait_for_bulk_load(uint64_t* barrier, uint32_t parity) { barrier_wait(barrier, parity); }

}  // namespace narrowcast::device
