// The intermediate representation of plans. A plan says which rank moves what to whom, in which order, with which
// codec. docs/design/plans.md defines what the steps mean; steps.def lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "narrowcast/types.h"
#include "operation/operation.h"

namespace narrowcast::plan {

using operation::Operation;

enum class StepKind : uint8_t {
#define PLAN_STEP(name, ...) name,
#include "plan/steps.def"
};

// Where an operand's values are.
enum class Place : uint8_t {
#define PLAN_PLACE(name, ...) name,
#include "plan/steps.def"
};

enum class Buffer : uint8_t { input, output, scratch };

// The step of a group of the same rank that a dependence names.
struct StepId {
  uint32_t group;
  uint32_t step;  // index in the group
  bool operator==(const StepId&) const = default;
};

// `count` chunks (of the step) that a step reads or writes.
struct Operand {
  Place place = Place::local;
  Buffer buffer = Buffer::input;  // not for messages
  uint32_t chunk = 0;             // the first one; not for messages
  uint32_t channel = 0;           // index in Plan::channels; not for local places
  // The location contains packets: a reader waits until the packets of this call have arrived.
  bool packets = false;
  // In which values cross the link, or are stored as packets. Both ends of a message must state the same codec. Of a
  // local destination: it receives the values as a message with this codec would deliver them.
  ncast_codec codec = NCAST_CODEC_RAW;
  // The values are sums that have not been rounded yet: accumulators. Of messages, and of scratch of the rank itself.
  bool partial = false;

  bool has_location() const { return place != Place::message; }
  bool has_channel() const { return place != Place::local; }
  bool operator==(const Operand&) const = default;
};

struct Step {
  StepKind kind = StepKind::copy;
  uint32_t count = 1;         // chunks of every operand
  std::vector<Operand> from;  // in the order in which they are combined
  std::vector<Operand> to;
  std::vector<uint32_t> channels;  // of signal, wait and flush
  uint32_t barrier = 0;            // index in Rank::barriers
  bool relaxed = false;            // of signal and wait
  std::vector<StepId> after;       // steps of other groups of the rank that must have completed
  uint64_t unit_bytes = 0;         // of a loop
  std::vector<Step> body;          // of a loop; contains no loops
  uint32_t origin = 0;             // the author's number for the step, which passes keep; 0: none
};

// Steps that run one after another, in one CTA or several. The groups of a rank run concurrently.
struct Group {
  std::vector<Step> steps;
};

struct Rank {
  uint32_t scratch_chunks = 0;
  std::vector<Group> groups;
  std::vector<std::vector<uint32_t>> barriers;  // the groups that each barrier waits for
};

enum class ChannelKind : uint8_t { ring, memory, port, multicast };

// Connects two ranks in one direction, or, if it is a switch channel, all of `ranks`. Between a rank and itself a
// memory channel is a semaphore.
struct Channel {
  ChannelKind kind = ChannelKind::ring;
  int from = 0, to = 0;
  uint32_t depth = 0;      // of a ring: how many messages fit
  bool packets = false;    // of a ring: messages are packets
  uint32_t initial = 0;    // of the semaphore of a memory or port channel
  std::vector<int> ranks;  // of a switch channel, ascending
};

// Whether output and input are the same memory, as operations.def defines for the operation ("in place").
enum class InPlace : uint8_t { no, yes, either };
// Visibility of stores within a group. synchronized: every step sees all earlier ones. independent: only after a sync
// or barrier, or if a step has exactly the operand of the earlier step.
enum class Threads : uint8_t { synchronized, independent };

struct Plan {
  std::string name;
  Operation operation = Operation::all_reduce;
  int root = 0;                 // of operations that have one
  uint32_t chunks = 1;          // of a piece, as operations.def counts pieces
  uint32_t instances = 1;       // how often lowering replicates the plan, each replica for a part of every chunk
  uint32_t scratch_copies = 1;  // 2: calls use two scratch buffers in turn
  InPlace in_place = InPlace::either;
  Threads threads = Threads::synchronized;
  uint64_t min_bytes = 0, max_bytes = 0;  // of the message, as `narrowcast bench` counts it; max 0: no limit
  std::vector<Channel> channels;
  std::vector<Rank> ranks;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  uint32_t input_chunks(int rank) const {
    return chunks *
           static_cast<uint32_t>(operation::pieces(operation::describe(operation).send, ranks.size(), rank == root));
  }
  uint32_t output_chunks(int rank) const {
    return chunks *
           static_cast<uint32_t>(operation::pieces(operation::describe(operation).recv, ranks.size(), rank == root));
  }
  uint32_t buffer_chunks(int rank, Buffer buffer) const {
    switch (buffer) {
      case Buffer::input: return input_chunks(rank);
      case Buffer::output: return output_chunks(rank);
      default: return ranks[static_cast<size_t>(rank)].scratch_chunks;
    }
  }
};

}  // namespace narrowcast::plan
