// What a kernel knows about the ranks of a CUDA communicator. Passed by value as a kernel parameter.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::channel {

inline constexpr int max_gpu_ranks = 8;
inline constexpr uint32_t cta_states = 64;  // per rank: see CtaState

// In pinned host memory, one per communicator and rank. The host uses it to stop kernels, and kernels to report
// failures.
struct KernelControl {
  uint32_t stop;  // set by the host or by the first kernel that fails; ends every wait
  uint32_t reserved;
  // Both words are written by one store. Only the first failure is recorded.
  alignas(8) uint32_t failed;  // a KernelFailure
  uint32_t peer;               // the rank that did not respond, sent the payload, or is the target of the request
  // Source of the host's copy to CtaState::stopped. 0 until the host stops the kernels.
  uint32_t stop_copies[cta_states];
};
// Why a kernel failed.
enum KernelFailure : uint32_t {
  no_failure = 0,
  wait_timed_out = 1,
  payload_corrupt = 2,
  request_timed_out = 3,
  call_mismatch = 4
};

// State in GPU memory that the kernels of a rank load when they begin. CTA i loads number i modulo cta_states. There
// are several so that the CTAs do not all read the same line of the L2 cache. One load of 8 bytes returns both words.
struct alignas(8) CtaState {
  uint32_t packet_calls;  // number of the last call by packets; the same for all CTAs
  uint32_t stopped;       // copy of control->stop
};

// What a kernel knows about the communicator.
struct Peers {
  int rank;
  int ranks;                     // 1 to max_gpu_ranks
  char* scratch[max_gpu_ranks];  // every rank's scratch as mapped for this GPU; same layout everywhere, initially zero
  KernelControl* control;
  CtaState* ctas;
  uint64_t timeout_ns;  // for a single wait; 0: no limit
};

}  // namespace narrowcast::channel
