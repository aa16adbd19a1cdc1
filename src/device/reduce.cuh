// Values that a warp reduces into others where those lie.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// The whole warp: into[i] = combine(into[i], values[i]) for `count` values. values: 16-byte aligned, in shared or
// global memory, visible to all threads. into: as aligned as its type, faster at 16; it does not overlap the values.
// What was written is the caller's to make visible.
template <typename Accumulator, typename Value, typename Combine>
__device__ __forceinline__ void reduce_by_warp(Accumulator* into, const Value* values, uint32_t count, int lane,
                                               Combine combine) {
  constexpr uint32_t of_vector = 16 / sizeof(Value);
  uint32_t done = 0;
  if constexpr (of_vector > 0 && sizeof(Accumulator) * of_vector % 16 == 0) {
    struct alignas(16) Values {
      Value of[of_vector];
    };
    struct alignas(16) Accumulators {
      Accumulator of[of_vector];
    };
    if (reinterpret_cast<uintptr_t>(into) % 16 == 0) {
      auto* const vectors = reinterpret_cast<Accumulators*>(into);
      for (uint32_t at = lane; at < count / of_vector; at += 32) {
        const Values more = reinterpret_cast<const Values*>(values)[at];
        Accumulators combined = vectors[at];
#pragma unroll
        for (uint32_t i = 0; i < of_vector; ++i) combined.of[i] = combine(combined.of[i], more.of[i]);
        vectors[at] = combined;
      }
      done = count / of_vector * of_vector;
    }
  }
  for (uint32_t at = done + lane; at < count; at += 32) into[at] = combine(into[at], values[at]);
}

}  // namespace narrowcast::device
