// Where a tile's payloads begin in a packed frame: the sum of the units of all tiles before it, by decoupled look-back
// (Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back", 2016).
#pragma once

#include <cstdint>

#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

// What the CTAs tell each other, zero before the kernel. For each tile a word: nothing yet (0), the units of its payloads,
// or the units of all payloads up to its end with `through` set. (A tile's units are never 0, and no tile but the last
// ends beyond 2^31.)
struct Workspace {
  unsigned long long next_tile;
  uint32_t told[];
};
inline constexpr uint32_t through = 1u << 31;

__device__ inline void tell(Workspace* workspace, uint32_t tile, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&workspace->told[tile]), "r"(word) : "memory");
}
// Before the first tile nothing stands.
__device__ inline uint32_t told(const Workspace* workspace, int64_t tile) {
  if (tile < 0) return through;
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(&workspace->told[tile]) : "memory");
  return word;
}

// The whole warp: the units of all payloads before `tile`. It reads rows of 32 tiles, several at once, because the way back
// to a tile that is told through is as long as there are tiles in flight. It ends, because tiles are handed out in order:
// whoever holds an earlier one is running.
__device__ inline uint32_t look_back(const Workspace* workspace, uint32_t tile, int lane) {
  constexpr int rows = 8;
  uint32_t units = 0;
  for (int64_t nearest = static_cast<int64_t>(tile) - 1 - lane;; nearest -= rows * 32) {
    uint32_t words[rows];
#pragma unroll
    for (int row = 0; row < rows; ++row) words[row] = told(workspace, nearest - row * 32);
    while (true) {
      // Rows count down to the nearest tile that is told through, and all of them must have told.
      uint32_t sum = 0, ends = 0;
      bool missing = false;
#pragma unroll
      for (int row = 0; row < rows; ++row) {
        if (ends != 0) continue;
        ends = __ballot_sync(device::all_lanes, (words[row] & through) != 0);
        const bool counts = ((ends != 0 ? ends ^ (ends - 1) : device::all_lanes) >> lane & 1) != 0;
        sum += counts ? words[row] & ~through : 0;
        missing = missing || (counts && words[row] == 0);
      }
      if (!__any_sync(device::all_lanes, missing)) {
        units += __reduce_add_sync(device::all_lanes, sum);
        if (ends != 0) return units;
        break;
      }
#pragma unroll
      for (int row = 0; row < rows; ++row)
        if (__any_sync(device::all_lanes, words[row] == 0)) words[row] = told(workspace, nearest - row * 32);
    }
  }
}

}  // namespace narrowcast::codec::cuda
