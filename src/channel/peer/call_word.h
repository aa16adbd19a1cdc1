// How ranks find out that they disagree about a call.
//
// A call has a mark, a hash of the arguments that both ends must share. A rank announces a call to its peers by a call
// word, which holds the number of the call and its mark, and compares the words that its peers announce with its own:
// the same number with another mark is a mismatch. Three kinds of calls are counted independently: collectives, sends
// to each rank, and receives from each rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/peer/peers.h"

namespace narrowcast::channel {

// A mark is never 0, which is the mark of users' kernels and means "no call" in AnnouncedCall.
inline constexpr uint32_t call_mark_bits = 13;

struct CallWord {
  uint64_t word;  // 0: the rank has not announced anything yet

  // number: of the call among those of its kind, counted from 1 since the communicator was created.
  static constexpr CallWord of(uint32_t number, uint32_t mark) { return {uint64_t{number} << 32 | mark}; }
  constexpr uint32_t number() const { return static_cast<uint32_t>(word >> 32); }
  constexpr uint32_t mark() const { return static_cast<uint32_t>(word); }
  constexpr bool is_same_call(CallWord other) const { return word != 0 && number() == other.number(); }
  constexpr bool disagrees_with(CallWord other) const { return is_same_call(other) && mark() != other.mark(); }
};

enum class CallKind : uint32_t { collective, send, recv };
inline constexpr uint32_t call_kinds = 3;

// The kind of call that the other end makes.
constexpr CallKind kind_of_peer(CallKind kind) {
  return kind == CallKind::send ? CallKind::recv : kind == CallKind::recv ? CallKind::send : CallKind::collective;
}

// What one kernel announces: marks by rank; 0: the kernel has no call with that rank. A collective has a call with
// every other rank in both directions, even if no data go there.
struct AnnouncedCall {
  size_t words;                  // where every rank's CallWords are in its scratch, in bytes
  uint16_t to[max_gpu_ranks];    // of what goes to each rank
  uint16_t from[max_gpu_ranks];  // of what comes from it
};

// In a rank's scratch; initially zero.
struct CallWords {
  // While a rank compares the words of call n, its peers announce at most call n + 2: a collective does not end before
  // every rank has announced it, and no message is sent before the previous one from that rank has been received.
  static constexpr uint32_t kept = 4;

  // Written by the peers, which announce by kind, number modulo `kept`, and rank.
  uint64_t announced[call_kinds][kept][max_gpu_ranks];
  // The rank's own: the words of its current calls, by the kind that its peer announces; and what counts the calls.
  uint64_t current[call_kinds][max_gpu_ranks];
  uint32_t block_collectives;  // collectives by blocks; those by packets have their own count
  uint32_t messages[call_kinds][max_gpu_ranks];
};

}  // namespace narrowcast::channel
