// A call to an operation of a communicator, and the tag by which ranks compare their calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "channel/host/ring.h"
#include "executor/factor.h"
#include "narrowcast/comm.h"
#include "operation/operation.h"

namespace narrowcast::executor {

using operation::Operation;

// The counts and offsets of all_to_all_v, copied from the caller's arrays. In values.
struct PeerCounts {
  struct Range {
    uint64_t first;  // offset in the buffer; 0 if elems is 0
    uint64_t elems;
  };
  std::vector<Range> send;  // by rank
  std::vector<Range> recv;
};

class LoadedPlan;

struct Call {
  Operation operation;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  ncast_dtype dtype = NCAST_INT8;
  ncast_codec codec = NCAST_CODEC_RAW;  // what the call allows
  // Of the values on the link, if the host backend runs the call; decided when the call is made.
  ncast_codec chosen_codec = NCAST_CODEC_RAW;
  // Of the results of an all_reduce, and as decided; nullopt: as above.
  std::optional<ncast_codec> result_codec = std::nullopt, chosen_result_codec = std::nullopt;
  ncast_redop redop = NCAST_SUM;
  std::optional<Factor> factor = std::nullopt;  // of this rank's values
  int peer = 0;                                 // the peer of send and recv; the root of operations that have one
  uint32_t plan = 0;                            // as in CallTag; decided when the call is made
  const char* built_in_plan = nullptr;          // the builder that runs the call on the host backend, if plan is 0
  // Set if the call runs a loaded plan because of a decision, not by ncast_loaded_plan_run.
  LoadedPlan* chosen = nullptr;
  // Only for all_to_all_v. Its `count` is 0.
  std::shared_ptr<const PeerCounts> peer_counts = nullptr;
  ncast_comm* comm = nullptr;
  ncast_stream stream = nullptr;
};

// The C function that made the call, for messages.
const char* function_of(const Call& call);

// Whether the call is a send or a receive between a rank and itself.
bool is_to_self(const Call& call);

// Sent with every chunk. The receiver compares it with the tag of its own call.
struct CallTag {
  uint64_t sequence;  // number of the collective on this communicator, or of the send from one rank to another
  uint64_t count;     // of the call; in chunks of all_to_all_v, from the sender to the receiver
  uint64_t position;  // of the message: its first value in a send, or its number on the ring in a plan
  uint64_t chunk_elems;
  ncast_codec codec;    // what the call allows; canonical
  Operation operation;  // `send` for a receive too
  uint8_t dtype;
  uint8_t redop;
  uint8_t phase;  // of calls in several stages: the number of the stage
  int32_t root;
  uint32_t plan;          // the number of a loaded plan; plan_of_builder(); 0: the default
  uint32_t result_codec;  // a hash of it; 0: the same codec
};
static_assert(sizeof(CallTag) == channel::tag_bytes);

// The count in the tag of a whole all_to_all_v, where each pair of ranks has its own count.
inline constexpr uint64_t counts_by_pair = ~uint64_t{0};

// The number of the plan of a builder that runs instead of the default, and its builder; NULL for other numbers.
uint32_t plan_of_builder(std::string_view name);
const char* builder_of(uint32_t plan);

// The reduction on which ranks agree: of a sum with a factor, operation::scaled_sum.
ncast_redop redop_of_tag(const Call& call);

CallTag make_tag(const Call& call, uint64_t sequence);

// A hash of operation, dtype, codec, redop, root and count, which GPUs send in their flags (channel/peer/call_word.h).
// Never 0, below 2^channel::call_mark_bits, and different for tags whose differences lie within 12 consecutive bits of
// these fields.
uint32_t call_mark(const CallTag& tag);

channel::Tag pack(const CallTag& tag);
CallTag unpack(const channel::Tag& packed);

// Whether two ranks made the same call. Ignores the fields of the chunk.
bool same_call(const CallTag& a, const CallTag& b);

// "all_reduce number 3 of 10 bfloat16 (sum, codec window)"
std::string describe(const CallTag& tag);

// The names of the fields that differ: "count, dtype".
std::string differences(const CallTag& a, const CallTag& b);

}  // namespace narrowcast::executor
