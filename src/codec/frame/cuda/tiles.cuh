// Where the tiles of a packed frame begin: each CTA tells the units of its tiles, one warp of all adds them up.
#pragma once

#include <cstdint>

#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

// What the CTAs tell each other, zero before the kernel. For each tile a word: nothing yet (0), the units of its payloads,
// or the units of all payloads before it with `placed` set. (A tile's units are never 0, and none begins beyond 2^31.)
struct Workspace {
  unsigned long long next_tile;
  uint32_t told[];
};
inline constexpr uint32_t placed = 1u << 31;

__device__ inline uint32_t take_tile(Workspace* workspace) {
  return static_cast<uint32_t>(atomicAdd(&workspace->next_tile, 1ull));
}
// Tiles that are coded at the same time are to be neighbours. So a CTA takes its second when all have a first, or soon: there may
// be no room yet for some of them.
__device__ inline void wait_for_first_tiles(const Workspace* workspace) {
  constexpr long long most_cycles = 8000;
  const long long begun = clock64();
  unsigned long long taken;
  do {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(taken) : "l"(&workspace->next_tile) : "memory");
  } while (taken < gridDim.x && clock64() - begun < most_cycles);
}

__device__ inline void tell(Workspace* workspace, uint32_t tile, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&workspace->told[tile]), "r"(word) : "memory");
}
__device__ inline uint32_t told(const Workspace* workspace, uint32_t tile) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(&workspace->told[tile]) : "memory");
  return word;
}

// The units of all payloads before a tile that was told. The wait ends, because tiles are handed out in order: whoever holds
// an earlier one is running.
__device__ inline uint32_t begin_of(const Workspace* workspace, uint32_t tile) {
  uint32_t word;
  do {
    word = told(workspace, tile);
  } while ((word & placed) == 0);
  return word & ~placed;
}

// The whole warp, of which there is one: adds up all tiles in order, as many at a time as have been told. (To let every CTA
// look back over the tiles before its own takes longer: with all SMs at work they are hundreds.)
__device__ inline void add_up_tiles(Workspace* workspace, uint32_t tile_count, int lane) {
  constexpr uint32_t of_lane = 4;
  uint32_t before = 0;  // units
  for (uint32_t first = 0; first < tile_count;) {
    // A lane has neighbouring tiles, and counts those up to the first that was not told.
    const uint32_t own = first + lane * of_lane;
    uint32_t units[of_lane], sum = 0, count = 0;
#pragma unroll
    for (uint32_t i = 0; i < of_lane; ++i) units[i] = own + i < tile_count ? told(workspace, own + i) : 0;
#pragma unroll
    for (uint32_t i = 0; i < of_lane; ++i) {
      if (count != i || units[i] == 0) continue;
      sum += units[i];
      ++count;
    }
    const uint32_t part = __ballot_sync(device::all_lanes, count != of_lane);  // lanes that lack some
    const int last = part == 0 ? 31 : __ffs(part) - 1;
    if (lane > last) sum = 0;
    const uint32_t up_to = device::inclusive_scan(sum);
    uint32_t begin = before + up_to - sum;
#pragma unroll
    for (uint32_t i = 0; i < of_lane; ++i) {
      if (lane > last || i >= count) continue;
      tell(workspace, own + i, begin | placed);
      begin += units[i];
    }
    before += __shfl_sync(device::all_lanes, up_to, 31);
    first += last * of_lane + __shfl_sync(device::all_lanes, count, last);
  }
}

}  // namespace narrowcast::codec::cuda
