// Before a long call one warp waits until all ranks' GPUs have come to it. The call's own kernel would wait on nearly every SM,
// where what computes at the same time could not go on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "channel/cuda/memory_channel.h"
#include "channel/cuda/peers.h"

namespace narrowcast::collective::cuda {

// In the rank's device memory, zero at first.
struct Meetings {
  uint64_t count;
  uint64_t is_apart;  // 1: some rank does not come to all meetings, and none is waited for
};

// Of values, of all ranks: shorter calls hold the GPU up for less than the meeting takes, in which two GPUs must hear of each
// other before the kernel is launched.
inline constexpr uint64_t least_meeting_bytes = uint64_t{16} << 20;

// Waits no longer than a tenth of a second: a rank that captured the call, where this one makes it at once, never comes.
cudaError_t launch_meeting(const channel::Peers& peers, const channel::ChannelLayout& layout, Meetings* meetings,
                           cudaStream_t stream);

}  // namespace narrowcast::collective::cuda
