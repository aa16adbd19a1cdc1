// One call of the communicator's interface, checked and ready to run; and what of it the peers compare.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "channel/host/ring.h"
#include "narrowcast/comm.h"
#include "operation/operation.h"

namespace narrowcast::executor {

using operation::Operation;

// What all_to_all_v sends to and receives from each rank, in values; a copy of the caller's.
struct PeerCounts {
  struct Range {
    uint64_t first;  // in its buffer; 0 where elems is
    uint64_t elems;
  };
  std::vector<Range> send;  // by rank
  std::vector<Range> recv;
};

struct Call {
  Operation operation;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  ncast_dtype dtype = NCAST_INT8;
  ncast_codec codec = NCAST_CODEC_RAW;
  ncast_redop redop = NCAST_SUM;
  int peer = 0;  // of send and recv; the root of those that have one
  // Of all_to_all_v, whose count is 0.
  std::shared_ptr<const PeerCounts> peer_counts = nullptr;
  ncast_comm* comm = nullptr;
  ncast_stream stream = nullptr;
};

bool is_to_oneself(const Call& call);

// Travels with every chunk: the receiver compares it with what it expects, field by field.
struct CallTag {
  uint64_t sequence;    // of the communicator's collectives, or of the sends from one rank to another
  uint64_t count;       // of the call; of a chunk of all_to_all_v, from its sender to its receiver
  uint64_t first_elem;  // of the chunk in its transfer
  uint64_t chunk_elems;
  ncast_codec codec;    // canonical
  Operation operation;  // a send's for both its ends
  uint8_t dtype;
  uint8_t redop;
  uint8_t phase;  // all_reduce scatters, then gathers
  int32_t root;
};
static_assert(sizeof(CallTag) == channel::tag_bytes);

// The count in the tag of an all_to_all_v as a whole: every two ranks have their own.
inline constexpr uint64_t counts_by_pair = ~uint64_t{0};

CallTag make_tag(const Call& call, uint64_t sequence);

// A hash of the tag without its sequence and chunk, which travels in the flags of GPUs (channel/peer/call_word.h):
// never 0, below 2^channel::call_mark_bits, and different for tags that differ within 12 consecutive bits of operation,
// dtype, codec, redop, root and count.
uint32_t call_mark(const CallTag& tag);

channel::Tag to_words(const CallTag& tag);
CallTag from_words(const channel::Tag& words);

// True when two ranks made the same call; chunks are not compared.
bool same_call(const CallTag& a, const CallTag& b);

// "all_reduce number 3 of 10 bfloat16 (sum, codec window)"
std::string describe(const CallTag& tag);

// What differs: "count, dtype".
std::string differences(const CallTag& a, const CallTag& b);

}  // namespace narrowcast::executor
