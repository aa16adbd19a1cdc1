// Reduction of values into accumulators by one warp.
#pragma once

#include <cstdint>

namespace narrowcast::device {

// The whole warp does into[i] = combine(into[i], values[i]) for `count` values. values: 16-byte aligned shared or
// global memory, visible to all threads. into: aligned to its type, faster if 16-byte aligned; must not overlap the
// values. The caller synchronizes before other threads read the result.
template <typename Accumulator, typename Value, typename Combine>
__device__ __forceinline__ void reduce_by_warp(Accumulator* into, const Value* values, uint32_t count, int lane,
                                               Combine combine) {
  constexpr uint32_t in_vector = 16 / sizeof(Value);
  uint32_t done = 0;
  if constexpr (in_vector > 0 && sizeof(Accumulator) * in_vector % 16 == 0) {
    struct alignas(16) Values {
      Value of[in_vector];
    };
    struct alignas(16) Accumulators {
      Accumulator of[in_vector];
    };
    if (reinterpret_cast<uintptr_t>(into) % 16 == 0) {
      auto* const vectors = reinterpret_cast<Accumulators*>(into);
      for (uint32_t at = lane; at < count / in_vector; at += 32) {
        const Values more = reinterpret_cast<const Values*>(values)[at];
        Accumulators combined = vectors[at];
#pragma unroll
        for (uint32_t i = 0; i < in_vector; ++i) combined.of[i] = combine(combined.of[i], more.of[i]);
        vectors[at] = combined;
      }
      done = count / in_vector * in_vector;
    }
  }
  for (uint32_t at = done + lane; at < count; at += 32) into[at] = combine(into[at], values[at]);
}

}  // namespace narrowcast::device
