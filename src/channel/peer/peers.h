// The ranks of a CUDA communicator as a kernel sees them: by value in its parameters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::channel {

inline constexpr int max_gpu_ranks = 8;

// In pinned host memory, one a communicator and rank. The host stops kernels by it, and kernels say what stopped them.
struct KernelControl {
  uint32_t stop;  // set by the host, or by the first kernel that gives up: every wait ends
  uint32_t reserved;
  // Written at once.
  alignas(8) uint32_t failed;  // a KernelFailure
  uint32_t peer;               // whom it waited for, who sent the payload, whom the request is for
};
// Why a kernel gave up.
enum KernelFailure : uint32_t { no_failure = 0, wait_timed_out = 1, payload_corrupt = 2, request_timed_out = 3 };

// What a kernel needs to know of the communicator.
struct Peers {
  int rank;
  int ranks;                     // 1 to max_gpu_ranks
  char* scratch[max_gpu_ranks];  // each rank's, as this GPU addresses it; all are laid out alike, and zero at first
  KernelControl* control;
  uint64_t timeout_ns;  // of one wait; 0: for ever
};

}  // namespace narrowcast::channel
