// Replaced by functions for execution on the host.
#pragma once

#include "executor/cuda/generated/simt/cuda.h"

namespace narrowcast::codec::cuda {

struct Workspace {
  unsigned long long next_tile;
  uint32_t tiles[];
};
inline constexpr uint32_t placed = 1u << 31;

inline uint32_t claim_tile(Workspace* workspace) {
  simt::poll();
  return static_cast<uint32_t>(atomicAdd(&workspace->next_tile, 1ull));
}
inline void wait_for_first_tiles(const Workspace* workspace) {
  for (int i = 0; i < 5 && workspace->next_tile < gridDim.x; ++i) simt::poll();
}
inline void publish(Workspace* workspace, uint32_t tile, uint32_t word) { workspace->tiles[tile] = word; }
inline uint32_t published(const Workspace* workspace, uint32_t tile) {
  return device::load_relaxed(&workspace->tiles[tile]);
}

}  // namespace narrowcast::codec::cuda
