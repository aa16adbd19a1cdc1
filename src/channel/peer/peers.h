// The ranks of a CUDA communicator as a kernel sees them: by value in its parameters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::channel {

inline constexpr int max_gpu_ranks = 8;

// In pinned host memory, one per communicator and rank. The host stops kernels through it, and kernels report failures.
struct KernelControl {
  uint32_t stop;  // set by the host or by the first kernel that fails; ends every wait
  uint32_t reserved;
  // Written by one store. The first failure only: what follows a stop is not recorded.
  alignas(8) uint32_t failed;  // a KernelFailure
  uint32_t peer;               // the rank that was waited for, sent the payload or is the target of the request
};
// Why a kernel failed.
enum KernelFailure : uint32_t {
  no_failure = 0,
  wait_timed_out = 1,
  payload_corrupt = 2,
  request_timed_out = 3,
  call_mismatch = 4
};

// What a kernel knows about the communicator.
struct Peers {
  int rank;
  int ranks;                     // 1 to max_gpu_ranks
  char* scratch[max_gpu_ranks];  // every rank's, as this GPU addresses it; same layout everywhere, initially zero
  KernelControl* control;
  // Copy of control->stop in this GPU's memory, for kernels to check when they begin (stop_word() in bounded_wait.cuh).
  uint32_t* stopped;
  uint64_t timeout_ns;  // of one wait; 0: no limit
};

}  // namespace narrowcast::channel
