// How a receiver lets a peer write values where they end up, in memory that the peer has mapped, with no slot in
// between.
//
// For each call that may do so the receiver sends the peer an invitation: a word in the peer's scratch that says in
// which registered region the values end up, and where; or in none, and then they go through slots. Invitations are
// counted, in device memory, so that a CUDA graph may be replayed. The next one cannot come before the last was read: a
// receiver's call ends when all its senders' ends have told it that they are done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/peer/call_word.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

// In a region that this rank has registered: values end up there.
struct RegionPlace {
  uint32_t region;  // its number, from 1; 0: in none
  uint64_t offset;  // bytes from its begin
};

struct Invitation {
  uint64_t word;

  static constexpr uint32_t numbers = 1u << 3, regions = 1u << 8;
  static constexpr uint64_t offsets = uint64_t{1} << 40;

  // mark: of the call, so that a sender in another call does not write into the receiver's memory.
  static constexpr Invitation of(uint32_t number, uint32_t mark, RegionPlace place) {
    return {uint64_t{number_and_mark(number, mark)} << 48 | uint64_t{place.region} << 40 | place.offset};
  }
  constexpr bool is_of(uint32_t number, uint32_t mark) const { return word >> 48 == number_and_mark(number, mark); }
  constexpr RegionPlace place() const { return {static_cast<uint32_t>(word >> 40) % regions, word % offsets}; }

 private:
  static constexpr uint32_t number_and_mark(uint32_t number, uint32_t mark) {
    return number % numbers << call_mark_bits | mark;
  }
};
static_assert(call_mark_bits + 3 == 16);

inline constexpr uint32_t most_regions = 63;
static_assert(most_regions < Invitation::regions);

// What a rank keeps of all this, in its device memory, zero at first.
struct StraightWrites {
  char* regions[most_regions + 1][max_gpu_ranks];  // of every rank, by number, as this GPU addresses them
  uint32_t sent[max_gpu_ranks];                    // invitations to each rank
  uint32_t received[max_gpu_ranks];                // and from it
};

}  // namespace narrowcast::channel
