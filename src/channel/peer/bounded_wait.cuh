// Waits of kernels for other ranks: they end when the communicator is stopped or the time is up.
#pragma once

#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
#include "peers.h"

namespace narrowcast::channel {

// One thread says why no kernel of this rank goes on, unless another has. Of several that say it at once any one is heard:
// that needs no atomic operation, which host memory does not have on every machine.
__device__ inline void give_up(const Peers& peers, int peer, KernelFailure failure) {
  KernelControl& control = *peers.control;
  if (device::load_relaxed(&control.failed) == no_failure)
    device::store_relaxed(reinterpret_cast<uint64_t*>(&control.failed),
                          uint64_t{static_cast<uint32_t>(peer)} << 32 | failure);
  device::store_release(&control.stop, 1);
}

inline constexpr uint32_t spins_between_looks = 4096;  // a look at the control block crosses the host link

// How long a thread has waited.
class Patience {
 public:
  // Is the wait to end, since the communicator is stopped or the time is up? Of the latter `peer` and `failure` are told.
  __device__ __forceinline__ bool ends(const Peers& peers, int peer, KernelFailure failure) {
    if (device::load_relaxed(&peers.control->stop) != 0) return true;
    const uint64_t now = device::nanoseconds();
    if (begin_ == 0) begin_ = now;
    if (peers.timeout_ns == 0 || now - begin_ < peers.timeout_ns) return false;
    give_up(peers, peer, failure);
    return true;
  }

 private:
  uint64_t begin_ = 0;
};

// One thread calls `ready()` until it is true. False: the communicator is stopped, the data did not come, and the caller
// ends its work without waiting again. `peer` is looked at when the time is up: ready() may say in it who is missing.
template <typename Ready>
__device__ __forceinline__ bool wait_until(const Peers& peers, const int& peer, Ready ready,
                                           KernelFailure failure = wait_timed_out) {
  Patience patience;
  for (uint32_t spin = 1;; ++spin) {  // ready() stands here once: it may be long
    if (ready()) return true;
    if (spin % spins_between_looks == 0 && patience.ends(peers, peer, failure)) return false;
  }
}

// The whole warp waits until ready() is true in all of its threads. `peer`: whom this thread waits for, as above.
template <typename Ready>
__device__ __forceinline__ bool wait_until_all(const Peers& peers, const int& peer, Ready ready) {
  Patience patience;
  for (uint32_t spin = 1;; ++spin) {
    const bool here = ready();
    if (__all_sync(device::all_lanes, here)) return true;
    if (spin % spins_between_looks != 0) continue;
    if (__any_sync(device::all_lanes, !here && patience.ends(peers, peer, wait_timed_out))) return false;
  }
}

// The whole warp waits until ready() is true in some of its threads `waiting`, given as bits, and gets these; 0 means what
// false does above. `peer`: whom this thread waits for.
template <typename Ready>
__device__ __forceinline__ uint32_t wait_until_any(const Peers& peers, int peer, uint32_t waiting, Ready ready) {
  const int thread = device::lane_id();
  const bool waits = (waiting >> thread & 1) != 0, looks = thread == __ffs(waiting) - 1;
  Patience patience;
  for (uint32_t spin = 1;; ++spin) {
    const uint32_t found = __ballot_sync(device::all_lanes, waits && ready());
    if (found != 0) return found;
    if (spin % spins_between_looks != 0) continue;
    if (__any_sync(device::all_lanes, looks && patience.ends(peers, peer, wait_timed_out))) return 0;
  }
}

}  // namespace narrowcast::channel
