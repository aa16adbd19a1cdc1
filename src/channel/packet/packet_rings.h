// Layout of the packets of users' kernels. Every ring of memory_channel.h has a second ring for packets alone, so that
// a packet's flag never occupies memory that held other data. It is in the receiver's memory, its credit in the
// sender's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../memory/memory_channel.h"
#include "narrowcast/channel.h"

namespace narrowcast::channel {

// Data and flag in one store, which whoever loads it sees whole.
struct PacketKind {
  uint32_t bytes;
  constexpr uint32_t data_bytes() const { return bytes - static_cast<uint32_t>(sizeof(uint32_t)); }
};
// Between GPUs that reach each other; and the largest that is seen whole in host memory, on any link.
inline constexpr PacketKind wide_packets{16}, narrow_packets{8};

// In every packet of a message: which use of the ring it is, never 0, and how long the message is. The receiver clears
// what it has read: the number of a use may come again.
struct PacketFlag {
  static constexpr uint32_t max_bytes = NCAST_PACKET_MESSAGE_BYTES;
  static constexpr uint32_t uses = (1u << 20) - 1;

  static constexpr uint32_t of(uint32_t use, uint32_t bytes) { return (use % uses + 1) << 12 | bytes; }
  static constexpr bool is_of(uint32_t flag, uint32_t use) { return flag >> 12 == use % uses + 1; }
  static constexpr uint32_t bytes(uint32_t flag) { return flag % (1u << 12); }
};

// Offsets in the memory of channels, behind what `channels` lays out.
class PacketRings {
 public:
  static constexpr uint32_t slots = 4;  // of a ring
  static constexpr uint32_t slot_bytes = 4096;
  static_assert(slot_bytes >= PacketFlag::max_bytes / narrow_packets.data_bytes() * narrow_packets.bytes);

  constexpr PacketRings(const ChannelLayout& channels, int ranks)
      : begin_((channels.bytes(ranks) + 127) / 128 * 128), rings_(channels.rings()), ranks_(ranks) {}

  constexpr size_t bytes() const { return count(3, 0, 0); }  // with the channels'

  // At the receiver.
  constexpr size_t slot_data(int source, uint32_t ring) const {
    return begin_ + number(source, ring) * slots * slot_bytes;
  }
  constexpr size_t received(int source, uint32_t ring) const { return count(0, source, ring); }
  // At the sender.
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
