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
  int64_t nearest = static_cast<int64_t>(tile) - 1 - lane;
  while (true) {
    uint32_t words[rows];
#pragma unroll
    for (int row = 0; row < rows; ++row) words[row] = told(workspace, nearest - row * 32);
    int rows_added = 0;
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      if (rows_added != row) continue;  // a row before this one is not all told
      const uint32_t ends = __ballot_sync(device::all_lanes, (words[row] & through) != 0);
      const uint32_t missing = __ballot_sync(device::all_lanes, words[row] == 0);
      const uint32_t wanted = ends != 0 ? ends ^ (ends - 1) : device::all_lanes;  // down to the nearest `through`
      if ((missing & wanted) != 0) continue;
      units += __reduce_add_sync(device::all_lanes, wanted >> lane & 1 ? words[row] & ~through : 0u);
      if (ends != 0) return units;
      rows_added = row + 1;
    }
    nearest -= rows_added * 32;
    // All who wait read the same few lines of the cache, where those that they wait for must write.
    if (rows_added == 0) __nanosleep(64);
  }
}

}  // namespace narrowcast::codec::cuda
