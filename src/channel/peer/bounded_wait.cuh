// How kernels wait for other ranks. A wait ends when the communicator is stopped or the timeout expires.
#pragma once

#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
#include "peers.h"

namespace narrowcast::channel {

// Loads the stop word. If it is not 0, the communicator was stopped before this kernel began, and the kernel must not
// send, receive or store anything. Without this check a kernel would still accept data that arrives within the first
// spins of a wait, possibly data of a different call.
//
// Cost: control->stop is in host memory, about a microsecond away. Kernels therefore read a copy in their own GPU's
// memory. The kernel that fails sets the copy directly; the host sets it by an asynchronous copy. Issue this load next
// to others whose latency is paid anyway (counters, the first values), then test the result with is_stopped(). The load
// goes through the L1 cache, so that the CTA reads the line from the L2 cache once: if every warp loaded it from there,
// a short call would take up to 10% longer.
__device__ __forceinline__ uint32_t stop_word(const Peers& peers) {
  return device::load_cached(&peers.ctas[blockIdx.x % cta_states].stopped);
}
// Whether the stop word is set. The compiler barrier keeps earlier loads before the caller's branch. After the branch
// they would wait for the stop word to arrive.
__device__ __forceinline__ bool is_stopped(uint32_t word) {
  asm volatile("" ::: "memory");
  return word != 0;
}

// Sets the stop word, so that kernels that begin later do nothing.
__device__ __noinline__ inline void stop_later_kernels(CtaState* ctas) {
  for (uint32_t cta = 0; cta < cta_states; ++cta) device::store_relaxed(&ctas[cta].stopped, 1);
}

// One thread stops the kernels of this rank and reports why, unless they already failed or were stopped. If several
// threads report at the same time, any one of the reports is kept. No atomic operation is needed: not every machine
// supports atomics on host memory.
__device__ inline void stop_kernels(const Peers& peers, int peer, KernelFailure failure) {
  KernelControl& control = *peers.control;
  if (device::load_relaxed(&control.stop) == 0 && device::load_relaxed(&control.failed) == no_failure)
    device::store_relaxed(reinterpret_cast<uint64_t*>(&control.failed),
                          uint64_t{static_cast<uint32_t>(peer)} << 32 | failure);
  stop_later_kernels(peers.ctas);
  device::store_release(&control.stop, 1);
}

inline constexpr uint32_t spins_between_checks = 4096;  // the control block is in host memory

// The time limit of one thread's wait. It starts at the first call of must_stop().
class WaitDeadline {
 public:
  // Whether the wait must end because the communicator is stopped or the timeout has expired. Reports a timeout as
  // `failure`.
  __device__ __forceinline__ bool must_stop(const Peers& peers, int peer, KernelFailure failure) {
    if (device::load_relaxed(&peers.control->stop) != 0) {
      stop_later_kernels(peers.ctas);  // the host's asynchronous copy may not have finished
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

// One thread calls `ready()` until it returns true. Returns false if the communicator is stopped: the data did not
// arrive, and the caller must return without waiting again. `peer` is the rank that a failure is attributed to. It is
// read only when the wait fails, so ready() may update it. If the wait takes long, disagrees() is called from time to
// time; it returns true if `peer` is in a different call, which is then reported.
template <typename Ready, typename Disagrees = NoMismatchCheck>
__device__ __forceinline__ bool wait_until(const Peers& peers, const int& peer, Ready ready,
                                           KernelFailure failure = wait_timed_out, Disagrees disagrees = {}) {
  WaitDeadline deadline;
  for (uint32_t spin = 1;; ++spin) {  // ready() is called in one place only, since its code may be long
    if (ready()) return true;
    if (spin % spins_between_checks != 0) continue;
    if (deadline.must_stop(peers, peer, failure)) return false;
    if (!disagrees()) continue;
    stop_kernels(peers, peer, call_mismatch);
    return false;
  }
}

// The whole warp waits until ready() is true in all its threads. Each thread has its own `peer` and `disagrees`; see
// above.
template <typename Ready, typename Disagrees = NoMismatchCheck>
__device__ __forceinline__ bool wait_until_all(const Peers& peers, const int& peer, Ready ready,
                                               Disagrees disagrees = {}) {
  WaitDeadline deadline;
  for (uint32_t spin = 1;; ++spin) {
    const bool is_ready = ready();
    if (__all_sync(device::all_lanes, is_ready)) return true;
    if (spin % spins_between_checks != 0) continue;
    const bool differs = !is_ready && disagrees();
    if (differs) stop_kernels(peers, peer, call_mismatch);
    if (__any_sync(device::all_lanes, differs || (!is_ready && deadline.must_stop(peers, peer, wait_timed_out))))
      return false;
  }
}

// The whole warp waits until ready() is true in at least one of the threads in the mask `waiting`. Returns the mask of
// those threads, or 0 if the communicator is stopped. `peer`: the rank that this thread waits for.
template <typename Ready>
__device__ __forceinline__ uint32_t wait_until_any(const Peers& peers, int peer, uint32_t waiting, Ready ready) {
  const int thread = device::lane_id();
  const bool is_waiting = (waiting >> thread & 1) != 0, checks_deadline = thread == __ffs(waiting) - 1;
  WaitDeadline deadline;
  for (uint32_t spin = 1;; ++spin) {
    const uint32_t found = __ballot_sync(device::all_lanes, is_waiting && ready());
    if (found != 0) return found;
    if (spin % spins_between_checks != 0) continue;
    if (__any_sync(device::all_lanes, checks_deadline && deadline.must_stop(peers, peer, wait_timed_out))) return 0;
  }
}

}  // namespace narrowcast::channel
