// Waits of kernels for other ranks. They end when the communicator is stopped or the timeout expires.
#pragma once

#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
#include "peers.h"

namespace narrowcast::channel {

// Not 0: the communicator was stopped before this kernel began, and the kernel must not send, receive or store
// anything. Without this check a kernel would still take what arrives within the first spins of a wait, possibly of
// another call.
//
// Cost: control->stop is in host memory, a microsecond away, so kernels read a copy in their own GPU's memory, set by
// the kernel that fails and, by an asynchronous copy, by the host. Issue this load next to others whose latency is paid
// anyway (counters, the first values) and then test it by is_stopped(). It goes through the L1 cache, so that the warps
// of a CTA read the L2 cache once: a load of every warp from one line costs a short call up to a tenth of its time.
__device__ __forceinline__ uint32_t stop_word(const Peers& peers) {
  return device::load_cached(&peers.ctas[blockIdx.x % cta_states].stopped);
}
// Whether the stop word is set. The barrier keeps the compiler from moving the loads before it behind the branch, where
// they would wait for the stop word to arrive.
__device__ __forceinline__ bool is_stopped(uint32_t word) {
  asm volatile("" ::: "memory");
  return word != 0;
}

// Makes kernels that begin from now on refuse.
__device__ __noinline__ inline void stop_later_kernels(CtaState* ctas) {
  for (uint32_t cta = 0; cta < cta_states; ++cta) device::store_relaxed(&ctas[cta].stopped, 1);
}

// One thread reports why the kernels of this rank stop, unless a failure or stop came before. If several threads report
// at the same time any of them wins: this needs no atomic operation, which not every machine has for host memory.
__device__ inline void stop_kernels(const Peers& peers, int peer, KernelFailure failure) {
  KernelControl& control = *peers.control;
  if (device::load_relaxed(&control.stop) == 0 && device::load_relaxed(&control.failed) == no_failure)
    device::store_relaxed(reinterpret_cast<uint64_t*>(&control.failed),
                          uint64_t{static_cast<uint32_t>(peer)} << 32 | failure);
  stop_later_kernels(peers.ctas);
  device::store_release(&control.stop, 1);
}

inline constexpr uint32_t spins_between_checks = 4096;  // reading the control block crosses the host link

// How long a thread has waited.
class WaitDeadline {
 public:
  // Whether the wait must end because the communicator is stopped or the timeout expired; the latter is reported.
  __device__ __forceinline__ bool must_stop(const Peers& peers, int peer, KernelFailure failure) {
    if (device::load_relaxed(&peers.control->stop) != 0) {
      stop_later_kernels(peers.ctas);  // the host's copy may still be under way
      return true;
    }
    const uint64_t now = device::nanoseconds();
    if (begin_ == 0) begin_ = now;
    if (peers.timeout_ns == 0 || now - begin_ < peers.timeout_ns) return false;
    stop_kernels(peers, peer, failure);
    return true;
  }

 private:
  uint64_t begin_ = 0;
};

struct NoMismatchCheck {
  __device__ bool operator()() const { return false; }
};

// One thread calls `ready()` until it returns true. False: the communicator is stopped, the data did not arrive, and
// the caller returns without waiting again. `peer` is read when the timeout expires: ready() may store in it who is
// missing. disagrees(): asked when the wait takes long; true: `peer` is in another call, which is reported.
template <typename Ready, typename Disagrees = NoMismatchCheck>
__device__ __forceinline__ bool wait_until(const Peers& peers, const int& peer, Ready ready,
                                           KernelFailure failure = wait_timed_out, Disagrees disagrees = {}) {
  WaitDeadline deadline;
  for (uint32_t spin = 1;; ++spin) {  // one call of ready() in the code: it may be long
    if (ready()) return true;
    if (spin % spins_between_checks != 0) continue;
    if (deadline.must_stop(peers, peer, failure)) return false;
    if (!disagrees()) continue;
    stop_kernels(peers, peer, call_mismatch);
    return false;
  }
}

// The whole warp waits until ready() is true in all its threads. peer, disagrees: of this thread, as above.
template <typename Ready, typename Disagrees = NoMismatchCheck>
__device__ __forceinline__ bool wait_until_all(const Peers& peers, const int& peer, Ready ready,
                                               Disagrees disagrees = {}) {
  WaitDeadline deadline;
  for (uint32_t spin = 1;; ++spin) {
    const bool here = ready();
    if (__all_sync(device::all_lanes, here)) return true;
    if (spin % spins_between_checks != 0) continue;
    const bool differs = !here && disagrees();
    if (differs) stop_kernels(peers, peer, call_mismatch);
    if (__any_sync(device::all_lanes, differs || (!here && deadline.must_stop(peers, peer, wait_timed_out))))
      return false;
  }
}

// The whole warp waits until ready() is true in some of the threads in the mask `waiting`, and gets these; 0 is what
// false is above. `peer`: the rank that this thread waits for.
template <typename Ready>
__device__ __forceinline__ uint32_t wait_until_any(const Peers& peers, int peer, uint32_t waiting, Ready ready) {
  const int thread = device::lane_id();
  const bool waits = (waiting >> thread & 1) != 0, looks = thread == __ffs(waiting) - 1;
  WaitDeadline deadline;
  for (uint32_t spin = 1;; ++spin) {
    const uint32_t found = __ballot_sync(device::all_lanes, waits && ready());
    if (found != 0) return found;
    if (spin % spins_between_checks != 0) continue;
    if (__any_sync(device::all_lanes, looks && deadline.must_stop(peers, peer, wait_timed_out))) return 0;
  }
}

}  // namespace narrowcast::channel
