// What the kernels of a communicator keep for themselves, in its rank's device memory, zero at first.
#pragma once

#include "channel/memory/direct_write.h"
#include "executor/cuda/blocks/call.h"

namespace narrowcast::executor::cuda {

// Kernels of one group that cannot be one run side by side, each with claims of its own: they code other types, or have
// several transfers with another rank one way.
constexpr int kernels_at_once(int ranks) { return 2 * (ranks - 1); }
inline constexpr int most_kernels_at_once = kernels_at_once(channel::max_gpu_ranks);

struct DeviceState {
  alignas(128) channel::CtaState ctas[channel::cta_states];  // Peers::ctas where the scratch is in host memory
  Sent sent[NCAST_OPERATIONS];
  Claims claims[most_kernels_at_once];
  channel::StraightWrites straight;  // of those that move values as they are
};

}  // namespace narrowcast::executor::cuda
