// Copies by one warp through registers, for addresses of any alignment.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// The 16 bytes at offset `bytes`, less than 16, in the 32 bytes of `low` and `high`.
__device__ __forceinline__ uint4 unaligned_vector(uint4 low, uint4 high, uint32_t bytes) {
  uint32_t words[7] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z}, last = high.w;
#pragma unroll
  for (int skipped = 2; skipped != 0; --skipped) {
    if ((bytes & 4 * skipped) == 0) continue;
#pragma unroll
    for (int i = 0; i < 7; ++i) words[i] = i + skipped < 7 ? words[i + skipped] : last;
  }
  const auto word = [&](int i) { return __funnelshift_r(words[i], words[i + 1], bytes * 8); };
  return {word(0), word(1), word(2), word(3)};
}

// Stores `count` vectors; load(i) returns vector i. Issues all loads of a batch before its first store, since for all
// the compiler knows the store might change what is loaded.
template <uint32_t batch, typename Load>
__device__ __forceinline__ void store_vectors(uint4* to, uint32_t count, int lane, Load load) {
  for (uint32_t first = lane; first < count; first += batch * 32) {
    uint4 vectors[batch];
#pragma unroll
    for (uint32_t i = 0; i < batch; ++i)
      if (first + i * 32 < count) vectors[i] = load(first + i * 32);
#pragma unroll
    for (uint32_t i = 0; i < batch; ++i)
      if (first + i * 32 < count) to[first + i * 32] = vectors[i];
  }
}

// The whole warp copies between shared or global memory. The ranges must not overlap. The caller synchronizes: the
// source must be visible to all threads before the call, and the copy is visible to other threads only after a barrier.
//
// Copies 16-byte vectors, `batch` at a time per lane. If source and destination are aligned differently, each vector is
// assembled from two aligned vectors of the source. The bytes left at each end, fewer than there are lanes, are copied
// one by one.
template <uint32_t batch>
__device__ __forceinline__ void copy_bytes(char* to, const char* from, uint32_t bytes, int lane) {
  uint32_t head = -static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) % 16;
  // The bytes of the source's first vector that precede the data of the destination's first vector. The head is
  // extended if that source vector would begin before `from`.
  const uint32_t before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) + head) % 16;
  if (before > head) head += 16;
  head = min(head, bytes);
  uint32_t count = (bytes - head + before) / 16;  // source vectors that end within the source
  if (before != 0 && count != 0) --count;
  auto* const first = reinterpret_cast<uint4*>(to + head);
  const auto* const source = reinterpret_cast<const uint4*>(from + head - before);
  if (before == 0) {
    store_vectors<batch>(first, count, lane, [=](uint32_t i) { return source[i]; });
  } else {
    store_vectors<batch>(first, count, lane,
                         [=](uint32_t i) { return unaligned_vector(source[i], source[i + 1], before); });
  }
  if (lane < head) to[lane] = from[lane];
  const uint32_t tail = head + count * 16 + lane;
  if (tail < bytes) to[tail] = from[tail];
}

// The same for use off the fast path. Not inlined, to keep kernels small enough for the instruction cache, and with a
// batch of 1, because its callers have no registers to spare.
__device__ __noinline__ inline void copy_by_warp(void* to, const void* from, uint32_t bytes, int lane) {
  copy_bytes<1>(static_cast<char*>(to), static_cast<const char*>(from), bytes, lane);
}

}  // namespace narrowcast::device
