// Memory channels: how one rank's warps put payloads into slots of a peer's memory, and where all that lies.
//
// A channel leads from one rank to another and has many rings. A ring is a queue of slots in the receiver's scratch,
// with one warp at each end. The sender writes a payload into a slot and then its flag. The receiver reads the payload
// and returns the slot through its credit, a count in the sender's scratch. Counts continue from call to call in device
// memory, so that CUDA graphs can be replayed. Every call starts with empty rings and may divide them into larger
// slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../peer/peers.h"

namespace narrowcast::channel {

// Bytes of a payload, a multiple of 16, and whether it is coded: some codecs' payloads can be as long as raw ones.
struct PayloadSize {
  uint32_t word;  // 0: there is no payload

  static constexpr uint32_t bits = 11;
  static constexpr PayloadSize of(uint32_t bytes, bool coded) { return {uint32_t{coded} << 10 | bytes / 16}; }
  constexpr uint32_t bytes() const { return word % (1u << 10) * 16; }
  constexpr bool is_coded() const { return (word >> 10 & 1) != 0; }
  constexpr explicit operator bool() const { return word != 0; }
  constexpr bool operator==(const PayloadSize&) const = default;
};

// Raised when a slot holds a payload: which use of the ring's slots this is (modulo 2^24), which block of the piece,
// whether this ring gets no more of the piece, and the payload's size.
struct SlotFlag {
  uint64_t word;

  static constexpr uint32_t uses = 1u << 24;
  static constexpr uint32_t blocks = 1u << 28;
  // In place of a size: the ring's values have been written where they end up.
  static constexpr PayloadSize written() { return {(1u << 10) - 1}; }

  static constexpr SlotFlag of(uint32_t use, uint32_t block, bool last, PayloadSize payload) {
    return {uint64_t{use % uses} << 40 | uint64_t{block} << 12 | uint64_t{last} << PayloadSize::bits | payload.word};
  }
  constexpr bool is_of(uint32_t use) const { return word >> 40 == use % uses; }
  constexpr uint32_t block() const { return static_cast<uint32_t>(word >> 12) % blocks; }
  constexpr bool last() const { return (word >> PayloadSize::bits & 1) != 0; }
  constexpr PayloadSize payload() const { return {static_cast<uint32_t>(word % (1u << PayloadSize::bits))}; }
};

// So many slots of a ring are granted back at a time, before the end of a call.
constexpr uint32_t slots_of_grant(uint32_t slots) { return (slots + 1) / 2; }

// How the channels lie in every rank's scratch, the same on all ranks. Offsets are in bytes from the scratch's begin.
class ChannelLayout {
 public:
  static constexpr uint32_t slot_bytes = 4096;
  static constexpr uint32_t min_slots = 2;
  static constexpr uint32_t max_slots = 8;

  ChannelLayout() = default;
  // As many slots a ring as `scratch_bytes` hold, a power of two; 0 if they do not hold the least.
  ChannelLayout(size_t begin, int ranks, uint32_t rings, size_t scratch_bytes) : begin_(begin), rings_(rings) {
    for (slots_ = max_slots; slots_ >= min_slots; slots_ /= 2)
      if (bytes(ranks) <= scratch_bytes) return;
    slots_ = 0;
  }

  constexpr uint32_t rings() const { return rings_; }
  constexpr uint32_t slots() const { return slots_; }
  // Of so many bytes, a multiple of slot_bytes.
  constexpr uint32_t slots_of(uint32_t bytes) const { return slots_ * slot_bytes / bytes; }
  constexpr size_t bytes(int ranks) const { return count(3, 0, 0, ranks) - begin_; }

  // In the scratch of the receiver, which is not `source`.
  constexpr size_t slot_data(int source, uint32_t ring) const {
    return begin_ + number(source, ring) * slots_ * slot_bytes;
  }
  constexpr size_t flags(int source, uint32_t ring, int ranks) const {
    return slot_data(ranks, 0) + number(source, ring) * slots_ * sizeof(SlotFlag);
  }
  constexpr size_t received(int source, uint32_t ring, int ranks) const { return count(0, source, ring, ranks); }
  // In the scratch of the sender.
  constexpr size_t sent(int peer, uint32_t ring, int ranks) const { return count(1, peer, ring, ranks); }
  constexpr size_t credit(int peer, uint32_t ring, int ranks) const { return count(2, peer, ring, ranks); }
  // An Invitation of `peer` (straight_write.h).
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
