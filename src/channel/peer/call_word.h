// How ranks notice that they disagree about a call. A call has a mark, a hash of its arguments that all ranks should
// share. The mark is part of the flags of slots and packets, so a rank never takes data of another call. And a rank
// tells the others which call it is in by a word that holds the number of the call and its mark: same number, other
// mark is a mismatch.
#pragma once

#include <cstdint>

#include "channel/peer/peers.h"

namespace narrowcast::channel {

// Never 0, which is the mark of users' kernels.
inline constexpr uint32_t call_mark_bits = 13;

struct CallWord {
  uint64_t word;  // 0: the rank has not said anything yet

  // number: of the collective call, counted from 1 since the communicator was created.
  static constexpr CallWord of(uint32_t number, uint32_t mark) { return {uint64_t{number} << 32 | mark}; }
  constexpr uint32_t number() const { return static_cast<uint32_t>(word >> 32); }
  constexpr uint32_t mark() const { return static_cast<uint32_t>(word); }
  constexpr bool disagrees_with(CallWord other) const {
    return word != 0 && number() == other.number() && mark() != other.mark();
  }
};

}  // namespace narrowcast::channel
