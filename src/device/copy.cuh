// Copies by one warp through its registers, for addresses of any alignment.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// The 16 bytes that begin so many, fewer than 16, behind the first of `low`, which `high` follows.
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

// load(i): the i-th of these vectors. All of a batch's loads are under way before its first store, which might be to
// where they come from.
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

// The whole warp, between shared and global memory of any kind, which do not overlap. The caller sees to it that what
// it copies is visible to all its threads, and what it copied before anybody reads it.
//
// Goes by vectors of 16 bytes, so many of a lane's at once, each of which is cut out of two of the source's if the
// addresses lie differently to multiples of 16. What is left at either end, fewer bytes than there are lanes, goes by
// bytes.
template <uint32_t batch>
__device__ __forceinline__ void copy_bytes(char* to, const char* from, uint32_t bytes, int lane) {
  uint32_t head = -static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) % 16;
  // So many bytes of the first of the source's vectors come before the first of `to`; none comes from before `from`.
  const uint32_t before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) + head) % 16;
  if (before > head) head += 16;
  head = min(head, bytes);
  uint32_t count = (bytes - head + before) / 16;  // of the source's vectors that end before its end
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

// The same where it is rare: not inlined, so that the code of a kernel stays in the instruction cache, and with few
// registers, of which its callers have none to spare.
__device__ __noinline__ inline void copy_by_warp(void* to, const void* from, uint32_t bytes, int lane) {
  copy_bytes<1>(static_cast<char*>(to), static_cast<const char*>(from), bytes, lane);
}

}  // namespace narrowcast::device
