// A ring of slots from one rank to one peer, in shared memory. The sender fills slots in order, the receiver
// frees them in order; neither end ever blocks here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/host/semaphore.h"

namespace narrowcast::channel {

inline constexpr size_t cache_line_bytes = 64;
inline constexpr size_t tag_bytes = 48;

// Words of the users of a channel, carried as they are.
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

// At the head of a ring; the slots follow. Each counter has a cache line: its writer and its reader are different
// cores.
struct RingState {
  alignas(cache_line_bytes) Semaphore filled;  // raised by the sender
  alignas(cache_line_bytes) Semaphore freed;   // raised by the receiver
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
  uint64_t passed_ = 0;  // slots that this end has filled or freed
};

// Used by one thread at a time, as is the other end.
class RingSender : public RingEnd {
 public:
  using RingEnd::RingEnd;

  // The next slot to fill, or none while the peer has not freed one. The same slot until put().
  Slot next_free() const { return passed_ - state_->freed.poll() < shape_.slots ? slot(passed_) : Slot{}; }

  // Hands the slot of next_free(), header and payload written, to the peer.
  void put() {
    ++passed_;
    state_->filled.signal(*peer_bell_);
  }
};

class RingReceiver : public RingEnd {
 public:
  using RingEnd::RingEnd;

  // The oldest slot that the peer has put, or none. The same slot until release().
  Slot next_filled() const { return state_->filled.poll() != passed_ ? slot(passed_) : Slot{}; }

  // Gives the slot of next_filled() back to the peer.
  void release() {
    ++passed_;
    state_->freed.signal(*peer_bell_);
  }
};

}  // namespace narrowcast::channel
