// What a generated kernel gets from the host. Host code, kernels compiled by nvcc and kernels compiled by NVRTC share
// these definitions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/memory/memory_channel.h"
#include "channel/peer/call_word.h"
#include "channel/peer/peers.h"
#include "executor/cuda/byte_counters.h"

namespace narrowcast::executor::cuda::generated {

// A chunk in the tables of a generated kernel: buffer, piece, and number of the chunk in the piece. Scratch is one
// piece.
struct ChunkRef {
  uint32_t word;

  static constexpr uint32_t max_piece = (1u << 10) - 1, max_chunk = (1u << 20) - 1;
  static constexpr uint32_t input = 0, output = 1, scratch = 2;
  static constexpr ChunkRef of(uint32_t buffer, uint32_t piece, uint32_t chunk) {
    return {buffer << 30 | piece << 20 | chunk};
  }
  constexpr uint32_t buffer() const { return word >> 30; }
  constexpr uint32_t piece() const { return word >> 20 & max_piece; }
  constexpr uint32_t chunk() const { return word & max_chunk; }
};

// An item in the tables of a generated kernel begins with two words: when it runs, and what the warp loads next, so
// that it can begin to load it.
struct ItemHead {
  uint32_t word;

  enum Next : uint32_t { nothing = 0, chunk = 1, message = 2 };
  static constexpr uint32_t words = 2;  // this one, and the chunk or the mask of receiving ends
  static constexpr int max_stage = (1 << 12) - 1;
  // stage: how many turns after the first step of a micro-batch the item runs. next_stage: of the item that loads next;
  // -1 if it is in the next turn's stage 0. settles: the item first waits for the stores of its group.
  static constexpr ItemHead of(int stage, Next next, int next_stage, bool settles) {
    return {static_cast<uint32_t>(stage) | uint32_t{next} << 12 | uint32_t{settles} << 14 |
            static_cast<uint32_t>(next_stage + 1) << 16};
  }
  constexpr uint32_t stage() const { return word & max_stage; }
  constexpr Next next() const { return static_cast<Next>(word >> 12 & 3); }
  constexpr bool settles() const { return (word >> 14 & 1) != 0; }
  constexpr uint32_t next_stage_and_1() const { return word >> 16; }
};

// A source of a reduction: two words.
struct SourceRef {
  uint32_t kind_and_number, chunk;

  enum Kind : uint32_t { message = 0, local = 1, remote = 2, encoded_packets = 3 };
  static constexpr uint32_t words = 2;
  // number: of the receiving end, or the rank whose memory the chunk is in.
  static constexpr SourceRef of(Kind kind, uint32_t number, uint32_t chunk, uint32_t writer = 0) {
    return {uint32_t{kind} << 30 | writer << 16 | number, chunk};
  }
  constexpr Kind kind() const { return static_cast<Kind>(kind_and_number >> 30); }
  constexpr uint32_t number() const { return kind_and_number & 0xffff; }
  constexpr uint32_t writer() const { return kind_and_number >> 16 & 0xff; }  // of packets
};

// An end of a ring in the tables: the peer, and the number of the ring among those between the two ranks.
struct EndRef {
  uint32_t word;

  static constexpr uint32_t none = ~0u;
  static constexpr EndRef of(int peer, uint32_t ring) { return {static_cast<uint32_t>(peer) | ring << 8}; }
  constexpr int peer() const { return word == none ? -1 : static_cast<int>(word & 0xff); }
  constexpr uint32_t ring() const { return word >> 8; }
};

// Where a buffer of a peer is, in the memory that the peer writes it to: number of the call, region and offset. See
// channel/memory/direct_write.h for regions.
struct BufferWord {
  uint64_t word;

  static constexpr BufferWord of(uint32_t call, uint32_t region, uint64_t offset) {
    return {uint64_t{call & 0xffff} << 48 | uint64_t{region} << 40 | offset};
  }
  constexpr bool is_of(uint32_t call) const { return word >> 48 == (call & 0xffff); }
  constexpr uint32_t region() const { return static_cast<uint32_t>(word >> 40) & 0xff; }
  constexpr uint64_t offset() const { return word & ((uint64_t{1} << 40) - 1); }
};

// The flag of a block of packets in scratch: the number of the call, and for encoded packets the bytes of the values
// and the size of their payload.
struct PacketFlag {
  uint64_t word;

  static constexpr PacketFlag of(uint32_t call, channel::PayloadSize payload, uint32_t values_bytes) {
    return {uint64_t{call} << 32 | uint64_t{values_bytes} << channel::PayloadSize::bits | payload.word};
  }
  constexpr bool is_of(uint32_t call) const { return word >> 32 == call; }
  constexpr uint32_t values_bytes() const { return static_cast<uint32_t>(word) >> channel::PayloadSize::bits; }
  constexpr channel::PayloadSize payload() const {
    return {static_cast<uint32_t>(word % (1u << channel::PayloadSize::bits))};
  }
};

// Memory of a loaded plan, by byte offset. Everything is initially zero and keeps its content from call to call.
// `shared` memory is accessed by the other ranks, and has the same layout on all of them.
struct PlanLayout {
  uint32_t warps;          // the most warps of a group
  uint32_t signals;        // semaphore words: one for each memory channel to the rank and each group that signals it
  uint32_t sent_signals;   // the same for the channels from the rank
  uint32_t waited;         // semaphores that the rank waits for
  uint32_t points;         // points of groups that other groups wait for
  uint32_t packet_chunks;  // scratch chunks that contain packets
  uint32_t packet_blocks;  // blocks of each that a launch can have
  uint32_t scratch_copies;
  uint64_t scratch_bytes;  // of one copy

  // Shared memory: signals, addresses of buffers, flags of packets, scratch.
  constexpr uint64_t signal(uint32_t number, uint32_t warp) const {
    return (uint64_t{number} * warps + warp) * sizeof(uint32_t);
  }
  constexpr uint64_t buffer_word(uint32_t call, int rank, uint32_t buffer) const {
    return aligned(signal(signals, 0)) +
           ((uint64_t{call % 2} * channel::max_gpu_ranks + static_cast<uint32_t>(rank)) * 2 + buffer) *
               sizeof(uint64_t);
  }
  // Each copy of the scratch has flags of its own, because a writer may be a call ahead of the reader.
  constexpr uint64_t packet_flag(uint32_t copy, uint32_t chunk, uint32_t block) const {
    return aligned(buffer_word(2, 0, 0) + sizeof(uint64_t) * 4 * channel::max_gpu_ranks) +
           ((uint64_t{copy} * packet_chunks + chunk) * packet_blocks + block) * sizeof(PacketFlag);
  }
  constexpr uint64_t scratch(uint32_t copy) const {
    return aligned(packet_flag(scratch_copies, 0, 0)) + copy * scratch_bytes;
  }
  constexpr uint64_t shared_bytes() const { return scratch(scratch_copies); }

  // The rank's own memory: numbers of calls by CTA, points, counts of signals sent and waited for.
  constexpr uint64_t calls() const { return 0; }
  constexpr uint64_t point(uint32_t number, uint32_t warp) const {
    return aligned(channel::cta_states * sizeof(uint32_t)) + (uint64_t{number} * warps + warp) * sizeof(uint64_t);
  }
  constexpr uint64_t sent_signal(uint32_t number, uint32_t warp) const {
    return aligned(point(points, 0)) + (uint64_t{number} * warps + warp) * sizeof(uint32_t);
  }
  constexpr uint64_t waited_signal(uint32_t number, uint32_t warp) const {
    return aligned(sent_signal(sent_signals, 0)) + (uint64_t{number} * warps + warp) * sizeof(uint32_t);
  }
  constexpr uint64_t own_bytes() const { return aligned(waited_signal(waited, 0)); }

 private:
  static constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 127) / 128 * 128; }
};

// A parameter of the kernels that work by blocks, passed by value.
struct PlanCall {
  channel::Peers peers;
  channel::ChannelLayout rings;  // of the communicator; see plan_turns.cuh for how warps use them
  uint32_t slots;                // of each ring
  uint32_t warps;                // of each group, the same on all ranks
  uint32_t first_block, blocks;  // the blocks of every chunk that this launch processes: a micro-batch each
  char* buffers[3];              // input, output, scratch
  uint64_t piece_bytes, chunk_bytes;
  uint64_t scratch_chunk_bytes;  // distance between scratch chunks: room for the blocks of a launch
  PlanLayout layout;
  char* own;                             // the rank's own memory
  char* shared[channel::max_gpu_ranks];  // the shared memory of all ranks, as mapped here; NULL if there is none
  char* const* regions;                  // addresses of registered memory by region and rank, in device memory
  uint32_t own_regions[2];               // of input and output; 0: not registered
  uint64_t own_offsets[2];
  ByteCounters* byte_counters;   // device memory
  unsigned long long raw_bytes;  // bytes of the values that this rank sends to other ranks
  channel::AnnouncedCall announced;
};

inline constexpr uint32_t max_packet_words = 192;

// The beginning of the parameter of the kernels that work by packets, which is passed by value.
struct PlanPacketCall {
  channel::Peers peers;  // scratch: the packet areas
  const char* input;
  char* output;
  uint32_t chunk_bytes;
  uint32_t rows;                      // of a chunk
  uint32_t buffer_bytes, rows_begin;  // of a packet buffer; where its rows of this kind of packet begin
  uint32_t mark;
  uint32_t is_aligned;              // all chunks begin at multiples of 8
  uint32_t delay;                   // how many jobs later a warp does the next phase of a job
  uint16_t tokens_to, tokens_from;  // bit masks of ranks with which this rank exchanges no messages in this direction
};
// Each line of 64 bytes of the parameters that a kernel uses takes time to load. The parameters begin 16 bytes after a
// line does, and without gaps a one-shot between two ranks uses three lines.
static_assert(sizeof(PlanPacketCall) == sizeof(channel::Peers) + 48);
// The whole parameter. The table has the numbers of this rank's strands. In constant memory it would have to be fetched
// into the constant cache by every call, which takes longer than the loads that depend on it.
template <uint32_t words>
struct PlanPacketCallOf : PlanPacketCall {
  uint32_t table[words];
};

}  // namespace narrowcast::executor::cuda::generated
