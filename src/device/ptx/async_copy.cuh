// Asynchronous copies by single threads from global to shared memory, in groups (cp.async, PTX ISA 9.7.9.25.3). The
// source may be mapped host memory.
#pragma once

#include <cstdint>

#include "system_memory.cuh"

namespace narrowcast::device {

__device__ __forceinline__ void start_copy_of_4_bytes(void* shared, const void* global) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(__cvta_generic_to_global(global))
      : "memory");
}

// For neighbouring threads that copy a line of 128 bytes of host memory: it is requested at once, because it passes
// through L1. The GPU requests parts of lines one by one otherwise, if they do not begin at a multiple of 64 bytes.
__device__ __forceinline__ void start_copy_of_16_bytes_by_line(void* shared, const void* global) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(__cvta_generic_to_global(global))
      : "memory");
}

// Ends a group: the copies that this thread has started since the last group. A group may be empty.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread except for the last `groups`, at most 7. The caller makes them visible to the
// other threads with a barrier.
__device__ __forceinline__ void wait_for_all_but(uint32_t groups) {
  // A tree of branches, because a switch would become an indirect branch.
  if (groups >= 4) {
    if (groups >= 6) {
      if (groups == 6)
        asm volatile("cp.async.wait_group 6;" ::: "memory");
      else
        asm volatile("cp.async.wait_group 7;" ::: "memory");
    } else if (groups == 4) {
      asm volatile("cp.async.wait_group 4;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 5;" ::: "memory");
    }
  } else if (groups >= 2) {
    if (groups == 2)
      asm volatile("cp.async.wait_group 2;" ::: "memory");
    else
      asm volatile("cp.async.wait_group 3;" ::: "memory");
  } else if (groups == 1) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
}

}  // namespace narrowcast::device
