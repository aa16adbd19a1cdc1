// Warp-level functions and packed arithmetic on registers.
#pragma once

#include <cstdint>

namespace narrowcast::device {

inline constexpr uint32_t all_lanes = 0xffffffff;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % 32); }

// The number of the warp in its CTA. The shuffle tells the compiler that the value is the same in all lanes, so that
// values derived from it are kept in uniform registers.
__device__ inline uint32_t warp_id() { return __shfl_sync(all_lanes, threadIdx.x / 32, 0); }

// The position of the highest set bit; ~0 if there is none.
__device__ __forceinline__ uint32_t highest_bit(uint32_t value) {
  uint32_t place;
  asm("bfind.u32 %0, %1;" : "=r"(place) : "r"(value));
  return place;
}

// Returns `value` in a way that the compiler cannot see through: values derived from the result are computed again
// instead of being kept in registers.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Sum of `value` over this lane and all lower lanes. The shuffle's predicate says whether the source lane exists.
__device__ __forceinline__ uint32_t inclusive_scan(uint32_t value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    asm volatile(
        "{\n"
        ".reg .pred exists;\n"
        ".reg .u32 below;\n"
        "shfl.sync.up.b32 below|exists, %0, %1, 0, 0xffffffff;\n"
        "@exists add.u32 %0, %0, below;\n"
        "}"
        : "+r"(value)
        : "r"(step));
  return value;
}

// The same over the lower lanes of this lane's tile. lanes: of a tile, a power of two.
__device__ __forceinline__ uint32_t inclusive_scan(uint32_t value, uint32_t lanes) {
  const uint32_t segments = (32 - lanes) << 8;
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    asm volatile(
        "{\n"
        ".reg .pred exists;\n"
        ".reg .u32 below;\n"
        "shfl.sync.up.b32 below|exists, %0, %1, %2, 0xffffffff;\n"
        "@exists add.u32 %0, %0, below;\n"
        "}"
        : "+r"(value)
        : "r"(step), "r"(segments));
  return value;
}

// The `value` of lane `lane_id() + lanes`, or 0 if there is no such lane.
__device__ __forceinline__ uint32_t shuffle_down_or_zero(uint32_t value, int lanes) {
  uint32_t above;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "shfl.sync.down.b32 %0|exists, %1, %2, 31, 0xffffffff;\n"
      "@!exists mov.u32 %0, 0;\n"
      "}"
      : "=r"(above)
      : "r"(value), "r"(lanes));
  return above;
}

// A word with `byte` in each of its four bytes.
__host__ __device__ constexpr uint32_t bytes4(uint32_t byte) { return byte * 0x01010101u; }
// A word with `half` in both halves.
__host__ __device__ constexpr uint32_t halves2(uint32_t half) { return half * 0x00010001u; }

// The bits of `a` where `mask` is set and those of `b` elsewhere. It is one instruction, which the compiler does not
// use by itself if the mask is a constant.
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(selected) : "r"(a), "r"(b), "r"(mask));
  return selected;
}

// Four of the eight bytes of `low` and `high`: byte i is the one that nibble i of `selector` says. If the top bit of
// the nibble is set, all bits of byte i are the sign of the byte selected, which __byte_perm cannot do.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

}  // namespace narrowcast::device
