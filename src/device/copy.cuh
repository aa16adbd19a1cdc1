// Copies by one warp through its registers, for addresses of any alignment.
#pragma once

#include <cstdint>

namespace narrowcast::device {

template <typename Word>
__device__ __forceinline__ void copy_words(void* to, const void* from, uint32_t bytes, int lane) {
#pragma unroll 4
  for (uint32_t i = lane; i < bytes / sizeof(Word); i += 32)
    static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
}

// The whole warp, between shared and global memory of any kind. The caller sees to it that what it copies is visible to
// all its threads, and what it copied before anybody reads it. Not inlined, as it is rare: the code of a kernel should stay
// in the instruction cache.
__device__ __noinline__ inline void copy_by_warp(void* to, const void* from, uint32_t bytes, int lane) {
  const uint32_t apart =
      static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) | bytes;
  if (apart % 16 == 0) return copy_words<uint4>(to, from, bytes, lane);
  if (apart % 4 == 0) return copy_words<uint32_t>(to, from, bytes, lane);
  if (apart % 2 == 0) return copy_words<uint16_t>(to, from, bytes, lane);
  return copy_words<uint8_t>(to, from, bytes, lane);
}

}  // namespace narrowcast::device
