// What ncast_channels::reserved contains for kernels.
#pragma once

#include "../peer/peers.h"
#include "memory_channel.h"
#include "narrowcast/channel.h"

namespace narrowcast::channel {

struct KernelChannels {
  Peers peers;           // scratch: memory for these channels only
  ChannelLayout layout;  // the PacketRings follow in memory
  uint32_t packet_bytes;
};
static_assert(sizeof(KernelChannels) <= sizeof ncast_channels::reserved);
static_assert(alignof(KernelChannels) <= alignof(ncast_channels));

// Capacity of a ring's slots in bytes.
inline constexpr uint32_t ring_bytes = ChannelLayout::max_slots * ChannelLayout::slot_bytes;

}  // namespace narrowcast::channel
