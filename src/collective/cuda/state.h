// What the kernels of a communicator keep for themselves, in its rank's device memory, zero at first.
#pragma once

#include "channel/cuda/straight_write.h"
#include "collective/cuda/block_call.h"

namespace narrowcast::collective::cuda {

// Kernels of one group that cannot be one, since they code other types, run side by side: each has claims of its own.
inline constexpr int most_kernels_at_once = 7;

struct DeviceState {
  unsigned long long wire_bytes;
  Claims claims[most_kernels_at_once];
  channel::StraightWrites straight;  // of the one that moves values as they are
};

}  // namespace narrowcast::collective::cuda
