// The state of a communicator's kernels in the rank's device memory; initially zero.
#pragma once

#include "channel/memory/direct_write.h"
#include "executor/cuda/blocks/call.h"

namespace narrowcast::executor::cuda {

// Transfers of a group need several concurrent kernels if their types or codecs differ, or if several of them have the
// same peer and direction. Each kernel has its own block counters.
constexpr int max_concurrent_kernels(int ranks) { return 2 * (ranks - 1); }

struct DeviceState {
  alignas(128) channel::CtaState ctas[channel::cta_states];  // Peers::ctas where the scratch is in host memory
  ByteCounters byte_counters[NCAST_OPERATIONS];
  BlockCounters block_counters[max_concurrent_kernels(channel::max_gpu_ranks)];
  channel::DirectWrites direct_writes;  // of kernels that move raw values
};

}  // namespace narrowcast::executor::cuda
