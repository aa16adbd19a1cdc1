// A rank with channels for tests whose kernels send messages around a ring of ranks.
#pragma once

#include "narrowcast/device.cuh"
#include "support/count_up.cuh"
#include "support/gpu_rank.h"

namespace narrowcast::testing {

inline constexpr uint32_t ctas = 3, warps = 4, rings = ctas * warps;
inline constexpr uint32_t batch = 3;  // messages that a warp sends before it receives: fewer than a ring holds

// Creates channels in addition to the communicator.
struct Rank : GpuRank {
  Rank(int rank, int ranks, const ncast_unique_id& id, std::barrier<>& everybody, uint32_t slot_bytes = 4096,
       double timeout_seconds = 20)
      : GpuRank(rank, ranks, id, everybody, timeout_seconds) {
    EXPECT_OK(ncast_channels_create(comm, rings, slot_bytes, &channels));
  }
  ~Rank() { ncast_channels_destroy(comm, &channels); }

  ncast_channels channels;
};

struct Place {
  uint32_t warp, ring;
  int thread, next, previous;
  __device__ explicit Place(const ncast_channels& channels)
      : warp(threadIdx.x / 32),
        ring(blockIdx.x * warps + warp),
        thread(threadIdx.x % 32),
        next((channels.rank + 1) % channels.ranks),
        previous((channels.rank + channels.ranks - 1) % channels.ranks) {}
};

__device__ inline uint8_t byte_of(int rank, uint32_t ring, uint32_t message, uint32_t i) {
  return static_cast<uint8_t>(rank * 71 + ring * 13 + message * 7 + i + i / 256);
}

}  // namespace narrowcast::testing
