// Channels and codecs for your own CUDA kernels. Requires C++20: compile with -std=c++20 --expt-relaxed-constexpr. The
// host creates channels with the functions in narrowcast/channel.h; docs/guide/channels.md is a tutorial.
//
// Called by a whole warp: all 32 threads call together, with the same arguments.
//   Sender          put, put_encoded, put_direct, signal, flush: sending end of a ring
//   Receiver        wait, poll, get, get_decoded, get_reduced, get_decoded_reduced, get_direct, release: receiving end
//   PacketSender    put, flush: sending end of a ring of packets, for short messages
//   PacketReceiver  poll, get: receiving end of a ring of packets
//   Window          the codec `window` for one value type
// Called by single threads:
//   Port            put, signal, flush, put_with_signal, put_with_signal_and_flush, wait, poll: copies by copy engines
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

// The codec `window` for a floating-point type. A block has 4096 bytes, or 8192 for float64.
template <ncast_dtype Dtype>
using Window = codec::window::Codec<Dtype>;

}  // namespace narrowcast

#endif  // NARROWCAST_DEVICE_CUH_
