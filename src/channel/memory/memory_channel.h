// Memory channels: how a rank's warps write payloads into slots of a peer's memory, and the layout of that memory.
//
// A channel connects one rank to another and has many rings. A ring is a queue of slots in the receiver's scratch, with
// one warp at each end. The sender writes a payload into a slot and then raises the slot's flag. The receiver reads the
// payload and releases the slot through its credit: a count of released slots in the sender's scratch. The counts are
// kept in device memory from call to call, so that CUDA graphs can be replayed. A call may divide a ring into other
// slots than the one before, and then begins with an empty ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../peer/peers.h"

namespace narrowcast::channel {

// Size of a payload in bytes, a multiple of 16, and whether it is coded: with some codecs a coded payload can be as
// long as a raw one.
struct PayloadSize {
  uint32_t word;  // 0: there is no payload

  static constexpr uint32_t bits = 11;
  static constexpr PayloadSize of(uint32_t bytes, bool coded) { return {uint32_t{coded} << 10 | bytes / 16}; }
  constexpr uint32_t bytes() const { return word % (1u << 10) * 16; }
  constexpr bool is_coded() const { return (word >> 10 & 1) != 0; }
  constexpr explicit operator bool() const { return word != 0; }
  constexpr bool operator==(const PayloadSize&) const = default;
};

// The flag that is raised when a slot contains a payload: the number of this use of a slot in the ring (modulo 2^23),
// whether the slots of this call are large, the number of the block in the piece, whether it is the piece's last one in
// this ring, and the payload's size. So a flag says where its payload is, which those who forward it to other hosts
// need (channel/network/forwarder.h).
struct SlotFlag {
  uint64_t word;

  static constexpr uint32_t uses = 1u << 23;
  static constexpr uint32_t blocks = 1u << 28;
  // A special size: the sender has written the ring's values directly to their destination.
  static constexpr PayloadSize written() { return {(1u << 10) - 1}; }

  static constexpr SlotFlag of(uint32_t use, bool large_slots, uint32_t block, bool last, PayloadSize payload) {
    return {uint64_t{use % uses} << 41 | uint64_t{large_slots} << 40 | uint64_t{block} << 12 |
            uint64_t{last} << PayloadSize::bits | payload.word};
  }
  constexpr bool is_of(uint32_t use) const { return word >> 41 == use % uses; }
  constexpr bool large_slots() const { return (word >> 40 & 1) != 0; }
  constexpr uint32_t block() const { return static_cast<uint32_t>(word >> 12) % blocks; }
  constexpr bool last() const { return (word >> PayloadSize::bits & 1) != 0; }
  constexpr PayloadSize payload() const { return {static_cast<uint32_t>(word % (1u << PayloadSize::bits))}; }
};

// What the sender of a ring keeps between calls.
struct alignas(8) SentState {
  uint32_t sent;      // payloads
  uint32_t division;  // division_of() the last call that used the ring; 0: none has
};
// Into how many slots a call divides a ring, and their size. If the last call did the same, payloads may be written
// before the receiver has released those of that call: the slots are used in turn.
constexpr uint32_t division_of(uint32_t slots, uint32_t slot_bytes) { return slot_bytes + slots; }

// The number of slots for which the receiver returns credit at a time, before the end of a call.
constexpr uint32_t slots_of_grant(uint32_t slots) { return (slots + 1) / 2; }

// Layout of the channels in each rank's scratch, the same on all ranks. Offsets are in bytes from the start of the
// scratch.
class ChannelLayout {
 public:
  static constexpr uint32_t slot_bytes = 4096, large_slot_bytes = 8192;
  static constexpr uint32_t min_slots = 2;
  static constexpr uint32_t max_slots = 8;

  ChannelLayout() = default;
  // Uses as many slots per ring, a power of two, as fit into scratch_bytes; 0 if min_slots do not fit.
  ChannelLayout(size_t begin, int ranks, uint32_t rings, size_t scratch_bytes) : begin_(begin), rings_(rings) {
    for (slots_ = max_slots; slots_ >= min_slots; slots_ /= 2)
      if (bytes(ranks) <= scratch_bytes) return;
    slots_ = 0;
  }

  constexpr uint32_t rings() const { return rings_; }
  constexpr uint32_t slots() const { return slots_; }
  // Number of slots per ring if a slot has `bytes` bytes: slot_bytes or large_slot_bytes.
  constexpr uint32_t slots_of(uint32_t bytes) const { return slots_ * slot_bytes / bytes; }
  constexpr size_t bytes(int ranks) const { return count(4, 0, 0, ranks) - begin_; }

  // In the scratch of the receiver. `source` is the sender.
  constexpr size_t slot_data(int source, uint32_t ring) const {
    return begin_ + number(source, ring) * slots_ * slot_bytes;
  }
  constexpr size_t flags(int source, uint32_t ring, int ranks) const {
    return slot_data(ranks, 0) + number(source, ring) * slots_ * sizeof(SlotFlag);
  }
  constexpr size_t received(int source, uint32_t ring, int ranks) const { return count(2, source, ring, ranks); }
  // In the scratch of the sender. sent: a SentState, which takes the place of two counts.
  constexpr size_t sent(int peer, uint32_t ring, int ranks) const {
    return count(0, 0, 0, ranks) + number(peer, ring) * sizeof(SentState);
  }
  constexpr size_t credit(int peer, uint32_t ring, int ranks) const { return count(3, peer, ring, ranks); }
  // An Invitation of `peer` (direct_write.h).
  constexpr size_t invitation(int peer, int ranks) const {
    return flags(ranks, 0, ranks) + static_cast<size_t>(peer) * sizeof(uint64_t);
  }

 private:
  constexpr size_t number(int rank, uint32_t ring) const { return static_cast<size_t>(rank) * rings_ + ring; }
  constexpr size_t count(int kind, int rank, uint32_t ring, int ranks) const {
    return invitation(ranks, ranks) + number(kind * ranks + rank, ring) * sizeof(uint32_t);
  }

  size_t begin_ = 0;
  uint32_t rings_ = 0;
  uint32_t slots_ = 0;
};

}  // namespace narrowcast::channel
