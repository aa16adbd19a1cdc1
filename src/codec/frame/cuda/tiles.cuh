// Determines where the tiles of a packed frame begin: each CTA publishes the units of its tiles, and one warp of the
// grid adds them up.
#pragma once

#include <cstdint>

#include "device/warp.cuh"

namespace narrowcast::codec::cuda {

// Shared by all CTAs, zeroed before the kernel. The word of a tile is 0 (not published yet), the units of its payloads,
// or `placed` together with the units of all payloads before it. A tile's units are never 0, and every tile begins
// below 2^31 units.
struct Workspace {
  unsigned long long next_tile;
  uint32_t tiles[];
};
inline constexpr uint32_t placed = 1u << 31;

__device__ inline uint32_t claim_tile(Workspace* workspace) {
  return static_cast<uint32_t>(atomicAdd(&workspace->next_tile, 1ull));
}
// Tiles that are coded at the same time should be neighbours, so a CTA claims its second tile only when all CTAs have
// claimed a first one. The wait is short, because some CTAs may not be resident yet.
__device__ inline void wait_for_first_tiles(const Workspace* workspace) {
  constexpr long long max_cycles = 8000;
  const long long started = clock64();
  unsigned long long claimed;
  do {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(claimed) : "l"(&workspace->next_tile) : "memory");
  } while (claimed < gridDim.x && clock64() - started < max_cycles);
}

__device__ inline void publish(Workspace* workspace, uint32_t tile, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&workspace->tiles[tile]), "r"(word) : "memory");
}
__device__ inline uint32_t published(const Workspace* workspace, uint32_t tile) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(&workspace->tiles[tile]) : "memory");
  return word;
}

// Waits for the position of a published tile: the units of all payloads before it. The wait ends, because tiles are
// handed out in order, so the CTAs that hold earlier tiles are running.
__device__ inline uint32_t begin_of(const Workspace* workspace, uint32_t tile) {
  uint32_t word;
  do {
    word = published(workspace, tile);
  } while ((word & placed) == 0);
  return word & ~placed;
}

// Adds up all tiles in order, with one warp of the grid, as many at a time as have been published. Decoupled look-back,
// in which every CTA sums the tiles before its own, is slower here: with all SMs in use there are hundreds of tiles in
// flight.
__device__ inline void add_up_tiles(Workspace* workspace, uint32_t tile_count, int lane) {
  constexpr uint32_t tiles_per_lane = 4;
  uint32_t before = 0;  // units
  for (uint32_t first = 0; first < tile_count;) {
    // Each lane reads neighbouring tiles and counts those before the first one that is not published.
    const uint32_t own = first + lane * tiles_per_lane;
    uint32_t units[tiles_per_lane], sum = 0, count = 0;
#pragma unroll
    for (uint32_t i = 0; i < tiles_per_lane; ++i) units[i] = own + i < tile_count ? published(workspace, own + i) : 0;
#pragma unroll
    for (uint32_t i = 0; i < tiles_per_lane; ++i) {
      if (count != i || units[i] == 0) continue;
      sum += units[i];
      ++count;
    }
    const uint32_t part = __ballot_sync(device::all_lanes, count != tiles_per_lane);  // lanes with an unpublished tile
    const int last = part == 0 ? 31 : __ffs(part) - 1;
    if (lane > last) sum = 0;
    const uint32_t up_to = device::inclusive_scan(sum);
    uint32_t begin = before + up_to - sum;
#pragma unroll
    for (uint32_t i = 0; i < tiles_per_lane; ++i) {
      if (lane > last || i >= count) continue;
      publish(workspace, own + i, begin | placed);
      begin += units[i];
    }
    before += __shfl_sync(device::all_lanes, up_to, 31);
    first += last * tiles_per_lane + __shfl_sync(device::all_lanes, count, last);
  }
}

}  // namespace narrowcast::codec::cuda
