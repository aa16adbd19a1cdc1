// How a sending warp of a user's kernel waits for room at its peer.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "../peer/bounded_wait.cuh"

namespace narrowcast::channel {

// The whole warp, until the peer's count of what it is done with, at `credit`, has come to `need`; granted: the count that was seen.
// One thread's acquire, handed on by the barriers, orders what the peer did before what the warp writes. False: stopped.
__device__ inline bool wait_for_grant(const Peers& peers, int peer, const uint32_t* credit, uint32_t need, int thread,
                                      uint32_t& granted) {
  bool ready = true;
  if (thread == 0) {
    ready = wait_until(peers, peer, [&] {
      granted = device::load_acquire(credit);
      return static_cast<int32_t>(granted - need) >= 0;
    });
  }
  granted = __shfl_sync(device::all_lanes, granted, 0);
  ready = __all_sync(device::all_lanes, ready);
  __syncwarp();
  return ready;
}

}  // namespace narrowcast::channel
