// A ring of slots from one rank to one peer, in shared memory. The sender fills slots in order, and the receiver frees
// them in order. No function here blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/host/semaphore.h"

namespace narrowcast::channel {

inline constexpr size_t cache_line_bytes = 64;
inline constexpr size_t tag_bytes = 56;

// Data that the user of the ring attaches to each slot.
struct Tag {
  unsigned char bytes[tag_bytes];
};

struct alignas(cache_line_bytes) SlotHeader {
  Tag tag;
  uint64_t payload_bytes;
};

struct RingShape {
  uint64_t slots;
  uint64_t payload_capacity_bytes;  // a multiple of the cache line

  uint64_t slot_bytes() const { return sizeof(SlotHeader) + payload_capacity_bytes; }
  uint64_t ring_bytes() const;
};

// The start of a ring, followed by the slots. The counters are on separate cache lines to avoid false sharing: one is
// written by the sender, the other by the receiver.
struct RingState {
  alignas(cache_line_bytes) Semaphore filled;  // signalled by the sender
  alignas(cache_line_bytes) Semaphore freed;   // signalled by the receiver
};

inline uint64_t RingShape::ring_bytes() const { return sizeof(RingState) + slots * slot_bytes(); }

struct Slot {
  SlotHeader* header;
  std::byte* payload;  // aligned to a cache line
  explicit operator bool() const { return header != nullptr; }
};

class RingEnd {
 public:
  RingEnd(void* ring, const RingShape& shape, Doorbell* peer_bell)
      : state_(static_cast<RingState*>(ring)), shape_(shape), peer_bell_(peer_bell) {}

  uint64_t payload_capacity_bytes() const { return shape_.payload_capacity_bytes; }

 protected:
  Slot slot(uint64_t number) const {
    std::byte* start = reinterpret_cast<std::byte*>(state_ + 1) + number % shape_.slots * shape_.slot_bytes();
    return {reinterpret_cast<SlotHeader*>(start), start + sizeof(SlotHeader)};
  }

  RingState* state_;
  RingShape shape_;
  Doorbell* peer_bell_;
  uint64_t position_ = 0;  // slots that this end has filled (sender) or freed (receiver)
};

// Used by one thread at a time, like RingReceiver.
class RingSender : public RingEnd {
 public:
  using RingEnd::RingEnd;

  // The next slot to fill, or none if the ring is full. Returns the same slot until put().
  Slot next_free() const { return position_ - state_->freed.poll() < shape_.slots ? slot(position_) : Slot{}; }

  // Hands the slot of next_free() to the peer. Header and payload must have been written.
  void put() {
    ++position_;
    state_->filled.signal(*peer_bell_);
  }
};

class RingReceiver : public RingEnd {
 public:
  using RingEnd::RingEnd;

  // The oldest slot that the peer has put, or none. Returns the same slot until release().
  Slot next_filled() const { return state_->filled.poll() != position_ ? slot(position_) : Slot{}; }

  // Returns the slot of next_filled() to the peer.
  void release() {
    ++position_;
    state_->freed.signal(*peer_bell_);
  }
};

}  // namespace narrowcast::channel
