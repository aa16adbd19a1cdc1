// How ranks detect that they disagree about a call.
//
// A call has a mark: a hash of the arguments on which both ends must agree. A rank announces a call to its peers with a
// call word, which contains the call's number and mark, and compares the call words of its peers with its own. The same
// number with a different mark is a mismatch. Three kinds of calls are counted separately: collectives, sends to each
// rank, and receives from each rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/peer/peers.h"

namespace narrowcast::channel {

// A mark is never 0: users' kernels have no mark and use 0, and in AnnouncedCall 0 means "no call".
inline constexpr uint32_t call_mark_bits = 13;

struct CallWord {
  uint64_t word;  // 0: the rank has not announced anything yet

  // number: counts the calls of one kind from 1 since the communicator was created.
  static constexpr CallWord of(uint32_t number, uint32_t mark) { return {uint64_t{number} << 32 | mark}; }
  constexpr uint32_t number() const { return static_cast<uint32_t>(word >> 32); }
  constexpr uint32_t mark() const { return static_cast<uint32_t>(word); }
  constexpr bool is_same_call(CallWord other) const { return word != 0 && number() == other.number(); }
  constexpr bool disagrees_with(CallWord other) const { return is_same_call(other) && mark() != other.mark(); }
};

enum class CallKind : uint32_t { collective, send, recv };
inline constexpr uint32_t call_kinds = 3;

// The kind of call that the peer makes.
constexpr CallKind kind_of_peer(CallKind kind) {
  return kind == CallKind::send ? CallKind::recv : kind == CallKind::recv ? CallKind::send : CallKind::collective;
}

// What one kernel announces: the marks of its calls by rank, or 0 if it has no call with a rank. A collective has calls
// with every other rank in both directions, even where it moves no data.
struct AnnouncedCall {
  size_t words;                  // byte offset of the CallWords in every rank's scratch
  uint16_t to[max_gpu_ranks];    // marks for data to each rank
  uint16_t from[max_gpu_ranks];  // marks for data from each rank
};

// Stored in each rank's scratch; initially zero.
struct CallWords {
  // The number of calls that are kept. While a rank compares the words of call n, its peers announce call n + 2 at
  // most: a collective does not end before every rank has announced it, and no message is sent before the previous one
  // from that rank has been received.
  static constexpr uint32_t history = 4;

  // Written by the peers: indexed by the peer's kind of call, call number modulo `history`, and peer.
  uint64_t announced[call_kinds][history][max_gpu_ranks];
  // The rank's own state: the words of its current calls, indexed by the kind that the peer announces, and the numbers
  // of calls so far.
  uint64_t current[call_kinds][max_gpu_ranks];
  uint32_t block_collectives;  // collectives by blocks; PacketState counts those by packets
  uint32_t messages[call_kinds][max_gpu_ranks];
};

}  // namespace narrowcast::channel
