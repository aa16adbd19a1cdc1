// The ranks of a CUDA communicator as a kernel sees them: by value in its parameters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::channel {

inline constexpr int max_gpu_ranks = 8;
inline constexpr uint32_t cta_states = 64;  // of a rank: see CtaState

// In pinned host memory, one per communicator and rank. The host stops kernels through it, and kernels report failures.
struct KernelControl {
  uint32_t stop;  // set by the host or by the first kernel that fails; ends every wait
  uint32_t reserved;
  // Written by one store. The first failure only: what follows a stop is not recorded.
  alignas(8) uint32_t failed;  // a KernelFailure
  uint32_t peer;               // the rank that was waited for, sent the payload or is the target of the request
  // What the host copies to CtaState::stopped: 0 until it stops the kernels.
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

// What the kernels of a rank load when they begin, in their GPU's memory: CTA i loads the i-th, modulo their number.
// There are several so that CTAs do not all read one line of the L2 cache; 8 bytes so that one load returns both words.
struct alignas(8) CtaState {
  uint32_t packet_calls;  // number of the last call by packets, the same in all
  uint32_t stopped;       // copy of control->stop
};

// What a kernel knows about the communicator.
struct Peers {
  int rank;
  int ranks;                     // 1 to max_gpu_ranks
  char* scratch[max_gpu_ranks];  // every rank's, as this GPU addresses it; same layout everywhere, initially zero
  KernelControl* control;
  CtaState* ctas;
  uint64_t timeout_ns;  // of one wait; 0: no limit
};

}  // namespace narrowcast::channel
