// Memory that other GPUs and the host read and write: loads, stores and fences of the system's scope (PTX ISA 9.7.9, 8.10).
#pragma once

#include <cstdint>

namespace narrowcast::device {

// An acquire load sees everything that was written before the release store whose value it reads.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// 16 bytes at once: whoever loads them sees all or none of a store (single-copy atomic, as .b128 is from sm_70 on).
__device__ __forceinline__ uint4 load_16_bytes_relaxed(const void* from) {
  uint64_t low, high;
  asm volatile(
      "{\n.reg .b128 value;\nld.relaxed.sys.global.b128 value, [%2];\nmov.b128 {%0, %1}, value;\n}"
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

// Orders what this thread read and wrote before what follows, as bulk copies see it.
__device__ __forceinline__ void order_before_bulk_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

// Nanoseconds of a clock that all SMs share; it may advance in steps of a microsecond.
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace narrowcast::device
