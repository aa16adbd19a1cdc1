// What ncast_channels holds for the kernels, in `reserved`.
#pragma once

#include "../peer/peers.h"
#include "memory_channel.h"
#include "narrowcast/channel.h"

namespace narrowcast::channel {

struct KernelChannels {
  Peers peers;           // scratch: the channels alone
  ChannelLayout layout;  // behind it lie the PacketRings
  uint32_t packet_bytes;
};
static_assert(sizeof(KernelChannels) <= sizeof ncast_channels::reserved);
static_assert(alignof(KernelChannels) <= alignof(ncast_channels));

// Bytes of messages that a ring holds.
inline constexpr uint32_t ring_bytes = ChannelLayout::max_slots * ChannelLayout::slot_bytes;

}  // namespace narrowcast::channel
