// What the warps of a generated kernel do: the steps of a lowered plan, in the order in which warps execute them. No
// CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/generated/plan_call.h"
#include "narrowcast/types.h"
#include "plan/ir.h"

namespace narrowcast::executor::cuda::generated {

// One chunk that an item reads or writes.
struct Place {
  enum class Kind : uint8_t { local, remote, message } kind = Kind::local;
  plan::Buffer buffer = plan::Buffer::input;  // of this rank, or of `rank` if it is remote
  uint32_t chunk = 0;
  int rank = 0;          // whose buffer a remote place is in
  uint32_t message = 0;  // index in Program::messages
  bool coded = false;    // encoded by the codec of the program
  bool packets = false;
  bool rounded = false;  // local: receives the values as a payload of the program's codec would deliver them
  int writer = 0;        // of packets that are read

  // Where a local place is.
  using Location = std::pair<plan::Buffer, uint32_t>;
  Location location() const { return {buffer, chunk}; }
  // As a source: its values count as sent.
  bool is_get() const { return kind == Kind::remote; }
  bool is_in(plan::Buffer other, uint32_t index) const {
    return kind == Kind::local && buffer == other && chunk == index;
  }
};

// A step for one chunk of each operand.
struct Item {
  enum class Kind : uint8_t { copy, reduce, signal, wait, publish, await } kind = Kind::copy;
  std::vector<Place> from, to;
  uint32_t channel = 0;  // of signal and wait
  bool relaxed = false;
  uint32_t point = 0;     // of publish and await
  bool finishes = false;  // of reduce: the result contains the values of all ranks
  bool settles = false;   // its group has written what it reads or writes
  int stage = 0;          // see plan_turns.cuh
  int depth = 0;          // the most messages on a path of dependences that leads to the item
  uint32_t order = 0;     // in an order in which all ranks can execute a micro-batch
  uint32_t origin = 0;    // Step::origin
};

// A message that a ring carries in every micro-batch.
struct Message {
  uint32_t channel = 0;
  int from = 0, to = 0;
  int sent_in = 0, received_in = 0;  // stages
  uint32_t ring = 0;                 // among the rings from `from` to `to`
};

// A semaphore of a memory channel is the sum of one word for each group that signals it.
struct Semaphore {
  int from = 0, to = 0;  // signals, waits
  uint32_t initial = 0;
  uint32_t first_word = 0;              // at `to`
  std::vector<uint32_t> signal_groups;  // of `from`
  bool is_waited_for = false;
};

struct GroupProgram {
  std::vector<Item> items;  // in the order of execution
};
struct RankProgram {
  static constexpr uint32_t scratch_chunk = ~0u;

  std::vector<GroupProgram> groups;
  // Of every chunk that is sent to another rank or got from one: its number in the piece, which determines its size.
  std::vector<uint32_t> sent_chunks;
  uint32_t points = 0;
  uint32_t scratch_chunks = 0;
};

struct Program {
  plan::Operation operation = plan::Operation::all_reduce;
  uint32_t chunks = 1;  // of a piece
  plan::InPlace in_place = plan::InPlace::either;
  ncast_dtype dtype = NCAST_INT8;
  ncast_redop op = NCAST_SUM;
  ncast_codec codec = NCAST_CODEC_RAW;  // of the coded places: messages and packets
  uint32_t block_bytes = 4096;
  std::vector<RankProgram> ranks;
  std::vector<Message> messages;
  std::vector<Semaphore> semaphores;  // by channel of the plan; those of other channels are not used
  int stages = 1;
  uint32_t rings = 1;         // between two ranks in one direction, at most
  bool shares_rings = false;  // a ring carries several messages of a micro-batch
  uint32_t min_slots = 2;     // of a ring, so that the kernel completes
  bool reduces = false;
  bool is_staged = false;              // the items' depths are known
  bool accesses_peers = false;         // through memory channels
  bool accesses_peer_buffers = false;  // inputs or outputs of other ranks
  bool has_packets = false;            // scratch with packets
  bool asks_for_packets = false;       // the messages of all its rings are packets
  uint32_t scratch_copies = 1;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  uint32_t groups() const;                      // of the rank that has most
  ChunkRef chunk_of(const Place& place) const;  // local or remote
};

// Turns a lowered plan that has been verified into a program for calls of this type and reduction. max_slots: of the
// rings of the communicator, for blocks of 4096 bytes. Errors: UNSUPPORTED, if no kernel can be generated for the plan;
// INVALID_ARGUMENT, if the plan does not complete.
ncast_status make_program(const plan::Plan& plan, ncast_dtype dtype, ncast_redop op, uint32_t max_slots,
                          Program* program);

// Where a local or remote place is in a call in place, on the rank that has it. The smaller one of input and output is
// a part of the larger one.
Place::Location location_in_place(const plan::Plan& plan, int rank, const Place& place);

// Executes the program of one micro-batch symbolically, in the order of the plan, to find out which reductions have the
// values of all ranks, and which chunks are sent. The items of groups must be in the order of the plan. Returns false
// if the program does not complete.
bool trace_values(const plan::Plan& plan, Program* program);
// Whether the program completes with rings of so many slots, for any number of micro-batches.
bool completes(const Program& program, uint32_t slots);

}  // namespace narrowcast::executor::cuda::generated
