// Layout of the packets of users' kernels. Every ring of memory_channel.h has a second ring used only for packets, so
// that a packet's flag is never read from memory that held other data. The ring is in the receiver's memory, its credit
// in the sender's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../memory/memory_channel.h"
#include "narrowcast/channel.h"

namespace narrowcast::channel {

// A packet contains data and a flag. It is written by one store and read by one load, atomically.
struct PacketKind {
  uint32_t bytes;
  constexpr uint32_t data_bytes() const { return bytes - static_cast<uint32_t>(sizeof(uint32_t)); }
};
// Wide packets are for GPUs that access each other's memory. Narrow packets are the largest that are atomic in host
// memory over any link.
inline constexpr PacketKind wide_packets{16}, narrow_packets{8};

// The flag in every packet of a message: the number of the ring's use, never 0, and the message's size. The numbers
// repeat, so the receiver clears the flags that it has read.
struct PacketFlag {
  static constexpr uint32_t max_bytes = NCAST_PACKET_MESSAGE_BYTES;
  static constexpr uint32_t uses = (1u << 20) - 1;

  static constexpr uint32_t of(uint32_t use, uint32_t bytes) { return (use % uses + 1) << 12 | bytes; }
  static constexpr bool is_of(uint32_t flag, uint32_t use) { return flag >> 12 == use % uses + 1; }
  static constexpr uint32_t bytes(uint32_t flag) { return flag % (1u << 12); }
};

// Byte offsets in the memory of channels. The packet rings follow the memory of `channels`.
class PacketRings {
 public:
  static constexpr uint32_t slots = 4;  // per ring
  static constexpr uint32_t slot_bytes = 4096;
  static_assert(slot_bytes >= PacketFlag::max_bytes / narrow_packets.data_bytes() * narrow_packets.bytes);

  constexpr PacketRings(const ChannelLayout& channels, int ranks)
      : begin_((channels.bytes(ranks) + 127) / 128 * 128), rings_(channels.rings()), ranks_(ranks) {}

  constexpr size_t bytes() const { return count(3, 0, 0); }  // including the channels'

  // In the receiver's memory.
  constexpr size_t slot_data(int source, uint32_t ring) const {
    return begin_ + number(source, ring) * slots * slot_bytes;
  }
  constexpr size_t received(int source, uint32_t ring) const { return count(0, source, ring); }
  // In the sender's memory.
  constexpr size_t sent(int peer, uint32_t ring) const { return count(1, peer, ring); }
  constexpr size_t credit(int peer, uint32_t ring) const { return count(2, peer, ring); }

 private:
  constexpr size_t number(int rank, uint32_t ring) const { return static_cast<size_t>(rank) * rings_ + ring; }
  constexpr size_t count(int kind, int rank, uint32_t ring) const {
    return slot_data(ranks_, 0) + number(kind * ranks_ + rank, ring) * sizeof(uint32_t);
  }

  size_t begin_;
  uint32_t rings_;
  int ranks_;
};

}  // namespace narrowcast::channel
