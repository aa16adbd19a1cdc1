// Channels and codecs for kernels of your own, in CUDA C++20; compile with -std=c++20 --expt-relaxed-constexpr.
// narrowcast/channel.h makes what they need; docs/guide/channels.md walks through it.
//
// Done by whole warps, each on its own: 32 threads call together, with the same arguments.
//   Sender    put, put_encoded, put_direct, signal, flush: a warp's end of a ring towards a peer
//   Receiver  wait, poll, get, get_decoded, get_reduced, get_decoded_reduced, get_direct, release: the other end
//   PacketSender    put, flush: a warp's end for short messages by packets, data and flag in one store
//   PacketReceiver  poll, get: the other end
//   Window    the codec `window` for values of a type
// Done by single threads:
//   Port      put, signal, flush, put_with_signal, put_with_signal_and_flush, wait, poll: copies by copy engines
#ifndef NARROWCAST_DEVICE_CUH_
#define NARROWCAST_DEVICE_CUH_

#include "narrowcast/channel.h"
#include "narrowcast/device/channel/memory/warp_channel.cuh"
#include "narrowcast/device/channel/packet/warp_packets.cuh"
#include "narrowcast/device/channel/port/port_channel.cuh"
#include "narrowcast/device/codec/window/kernel.cuh"

namespace narrowcast {

using channel::BlockMemory;
using channel::PacketReceiver;
using channel::PacketSender;
using channel::Port;
using channel::PortPlace;
using channel::Receiver;
using channel::Sender;
using device::BlockCodec;

// Of the floating-point types: 4096 bytes a block, 8192 for float64.
template <ncast_dtype Dtype>
using Window = codec::window::Codec<Dtype>;

}  // namespace narrowcast

#endif  // NARROWCAST_DEVICE_CUH_
