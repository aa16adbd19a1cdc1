// How a sending warp of a user's kernel waits for free slots in the peer's memory.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "../peer/bounded_wait.cuh"

namespace narrowcast::channel {

// The whole warp waits until the peer has released the messages before number `need`. Stores the count at `credit` in
// `granted`. Thread 0 loads it with acquire order, and the warp barriers extend this order to the other threads'
// writes. stopped: the warp's stop_word(). Returns false if the communicator is stopped.
__device__ inline bool wait_for_grant(const Peers& peers, int peer, const uint32_t* credit, uint32_t need,
                                      uint32_t stopped, int thread, uint32_t& granted) {
  bool ready = true;
  if (thread == 0) {
    ready = stopped == 0 && wait_until(peers, peer, [&] {
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
