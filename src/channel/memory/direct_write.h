// Direct writes: a sender writes values to their destination in registered memory of the receiver, which the sender has
// mapped, instead of going through slots.
//
// In each call that allows direct writes the receiver sends the sender an invitation: a word in the sender's scratch
// that names the registered region and the offset of the destination. If the destination is not registered, the
// invitation says so and the values go through slots. Invitations are counted in device memory, so CUDA graphs can be
// replayed. An invitation is always read before the next one is written, because the receiver's call ends only after
// every sending end has reported that it is done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/peer/call_word.h"
#include "channel/peer/peers.h"

namespace narrowcast::channel {

// The destination of values in registered memory of this rank.
struct RegionPlace {
  uint32_t region;  // number of the region, from 1; 0: the destination is not registered
  uint64_t offset;  // in bytes
};

struct Invitation {
  uint64_t word;

  static constexpr uint32_t numbers = 1u << 3, regions = 1u << 8;
  static constexpr uint64_t offsets = uint64_t{1} << 40;

  // mark: the hash of the call, so that a sender in a different call does not write to the receiver's memory.
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

inline constexpr uint32_t max_regions = 63;
static_assert(max_regions < Invitation::regions);

// The state of direct writes in a rank's device memory; initially zero.
struct DirectWrites {
  char* regions[max_regions + 1][max_gpu_ranks];  // addresses on this GPU, by region number and rank
  uint32_t invitations_sent[max_gpu_ranks];       // to each rank
  uint32_t invitations_received[max_gpu_ranks];   // from each rank
  uint32_t invitations_checked[max_gpu_ranks];    // number of the last one found valid, from each rank
};

}  // namespace narrowcast::channel
