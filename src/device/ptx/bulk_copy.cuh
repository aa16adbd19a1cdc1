// Bulk copies between global and shared memory (cp.async.bulk, PTX ISA 9.7.9.25) by one warp. On GPUs before Hopper the
// same functions load with asynchronous copies of 16 bytes, and store with ordinary stores.
#pragma once

#include <cstdint>

#include "device/ptx/system_memory.cuh"

namespace narrowcast::device {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define NARROWCAST_HAS_BULK_COPY 1
#endif

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Each thread calls it before a bulk copy reads or overwrites shared memory that the thread wrote with ordinary stores.
__device__ inline void order_stores_before_bulk_copies() {
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Signals that a load into shared memory has completed. It uses 8 bytes of shared memory, and one warp waits for it.
class LoadBarrier {
 public:
  // Called by the whole warp. word: 8-byte aligned and used by this warp only.
  __device__ LoadBarrier(uint64_t* word, int lane) : word_(word) {
#ifdef NARROWCAST_HAS_BULK_COPY
    if (lane == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(word_)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
#endif
  }

  // The whole warp starts a load of `bytes` bytes (a multiple of 16; both addresses 16-byte aligned). All lanes must
  // have finished reading the previous content of `to`.
  __device__ void load(void* to, const void* from, uint32_t bytes, int lane) {
    __syncwarp();
#ifdef NARROWCAST_HAS_BULK_COPY
    if (lane == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(word_)), "r"(bytes)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_address(to)),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(word_))
                   : "memory");
    }
#else
#pragma unroll 1  // nothing waits for the copies, and kernels contain this code several times
    for (uint32_t at = lane * 16; at < bytes; at += 32 * 16)
      start_copy_of_16_bytes(static_cast<char*>(to) + at, static_cast<const char*>(from) + at);
#endif
  }

  // The whole warp waits for the load that it started.
  __device__ void wait() {
#ifdef NARROWCAST_HAS_BULK_COPY
    asm volatile(
        "{\n"
        ".reg .pred arrived;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 arrived, [%0], %1;\n"
        "@!arrived bra again;\n"
        "}" ::"r"(shared_address(word_)),
        "r"(parity_)
        : "memory");
    parity_ ^= 1;
#else
    wait_for_copies_of_16_bytes();
#endif
    __syncwarp();
  }

 private:
  uint64_t* word_;
  uint32_t parity_ = 0;
};

// One thread prefetches `bytes` bytes (a multiple of 16, from a 16-byte aligned address) into the L2 cache.
__device__ inline void prefetch_to_l2(const void* from, uint32_t bytes) {
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#endif
}

// One thread stores data that other threads wrote to shared memory. Each of them must have called
// order_stores_before_bulk_copies() and then arrived at a barrier for which this thread has waited.
__device__ inline void bulk_store_by_thread(void* to, const void* from, uint32_t bytes) {
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  for (uint32_t at = 0; at < bytes; at += 16)
    *reinterpret_cast<uint4*>(static_cast<char*>(to) + at) =
        *reinterpret_cast<const uint4*>(static_cast<const char*>(from) + at);
#endif
}
// A thread waits until its bulk stores have read their shared memory, which may then be overwritten. The kernel must
// not end before that.
__device__ inline void wait_for_store_sources_by_thread() {
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

// The whole warp stores `bytes` bytes (a multiple of 16; both addresses 16-byte aligned) that its lanes wrote to shared
// memory.
__device__ inline void bulk_store(void* to, const void* from, uint32_t bytes, int lane) {
#ifdef NARROWCAST_HAS_BULK_COPY
  order_stores_before_bulk_copies();
  __syncwarp();
  if (lane == 0) bulk_store_by_thread(to, from, bytes);
#else
  __syncwarp();
  for (uint32_t at = lane * 16; at < bytes; at += 32 * 16)
    *reinterpret_cast<uint4*>(static_cast<char*>(to) + at) =
        *reinterpret_cast<const uint4*>(static_cast<const char*>(from) + at);
#endif
}

// The same for the bulk stores of a warp. Called by the whole warp.
__device__ inline void wait_for_store_sources(int lane) {
  if (lane == 0) wait_for_store_sources_by_thread();
  __syncwarp();
}

// A thread has loaded a flag with acquire order: orders what it announces before bulk copies that the thread starts.
__device__ inline void order_memory_before_bulk_copies() {
#ifdef NARROWCAST_HAS_BULK_COPY
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
// The whole warp waits until its stores, bulk stores included, have been performed, so that any later access of the
// warp sees them, and a release by any of its threads releases them.
__device__ inline void wait_for_stores(int lane) {
#ifdef NARROWCAST_HAS_BULK_COPY
  __syncwarp();
  if (lane == 0) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
#endif
  __syncwarp();
}

}  // namespace narrowcast::device
