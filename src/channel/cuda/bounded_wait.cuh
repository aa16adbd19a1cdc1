// Waits of kernels for other ranks: they end when the communicator is stopped or the time is up.
#pragma once

#include "../../device/ptx/system_memory.cuh"
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

// One thread calls `ready()` until it is true. False: the communicator is stopped, the data did not come, and the caller
// ends its work without waiting again. `peer` is looked at when the time is up: ready() may say in it who is missing.
template <typename Ready>
__device__ __forceinline__ bool wait_until(const Peers& peers, const int& peer, Ready ready,
                                           KernelFailure failure = wait_timed_out) {
  constexpr uint32_t spins_between_looks = 4096;  // a look at the control block crosses the host link
  uint64_t begin = 0;
  for (uint32_t spin = 1;; ++spin) {  // ready() stands here once: it may be long
    if (ready()) return true;
    if (spin % spins_between_looks != 0) continue;
    if (device::load_relaxed(&peers.control->stop) != 0) return false;
    const uint64_t now = device::nanoseconds();
    if (begin == 0) begin = now;
    if (peers.timeout_ns == 0 || now - begin < peers.timeout_ns) continue;
    give_up(peers, peer, failure);
    return false;
  }
}

}  // namespace narrowcast::channel
