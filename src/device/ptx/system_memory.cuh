// Access to memory that other GPUs and the host also access: loads, stores and fences of system scope (PTX ISA 9.7.9,
// 8.10).
#pragma once

#include <cstdint>

namespace narrowcast::device {

// After an acquire load, everything that was written before the release store whose value it returned is visible.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint64_t load_acquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
// A load through the L1 cache, which may return a value that another thread of the SM has loaded since the kernel
// began. Unlike an ordinary load, it is not moved by the compiler towards its first use.
__device__ __forceinline__ uint32_t load_cached(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
// Stores two adjacent words, 16-byte aligned.
__device__ __forceinline__ void store_relaxed(uint64_t* to, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second) : "memory");
}
__device__ __forceinline__ void store_release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_release(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Orders all writes that this thread has made or observed before its later writes.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// The same, and also before its later reads; all such fences of all threads have one order.
__device__ __forceinline__ void fence_system_total() { asm volatile("fence.sc.sys;" ::: "memory"); }

// Acquire and release within a CTA, for global or shared memory.
__device__ __forceinline__ uint32_t load_acquire_cta(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_release_cta(uint32_t* to, uint32_t value) {
  asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Atomic loads and stores of 16 bytes (.b128 is single-copy atomic from sm_70 on).
__device__ __forceinline__ uint4 load_16_bytes_relaxed(const void* from) {
  uint64_t low, high;
  asm volatile("{\n.reg .b128 value;\nld.relaxed.sys.global.b128 value, [%2];\nmov.b128 {%0, %1}, value;\n}"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
}
__device__ __forceinline__ void store_16_bytes_relaxed(void* to, uint4 value) {
  const uint64_t low = value.x | uint64_t{value.y} << 32, high = value.z | uint64_t{value.w} << 32;
  asm volatile("{\n.reg .b128 value;\nmov.b128 value, {%1, %2};\nst.relaxed.sys.global.b128 [%0], value;\n}" ::"l"(to),
               "l"(low), "l"(high)
               : "memory");
}

// Asynchronous copies of 16 bytes to shared memory. Unlike bulk copies they need no fence after an acquire load.
__device__ __forceinline__ void start_copy_of_16_bytes(void* shared, const void* global) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(__cvta_generic_to_global(global))
      : "memory");
}
__device__ __forceinline__ void wait_for_copies_of_16_bytes() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Time in nanoseconds of a clock that all SMs share. It may advance in steps of a microsecond.
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace narrowcast::device
