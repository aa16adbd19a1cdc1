// One rank's part of a call by blocks: the pieces that it sends to each rank, receives from each rank and reduces.
// Includes no CUDA headers, so host code can use it; kernels.h declares the launch functions.
#pragma once

#include <cstdint>

#include "channel/memory/direct_write.h"
#include "channel/memory/memory_channel.h"
#include "channel/peer/peers.h"
#include "executor/cuda/byte_counters.h"
#include "executor/factor.h"
#include "narrowcast/types.h"
#include "select/block_shape.h"

namespace narrowcast::executor::cuda {

using namespace select;

// Consecutive values, and the rings that transfer their blocks. The first block of ring i is block i.
struct Piece {
  char* values;  // not written if the piece is sent
  uint64_t bytes;
  uint32_t rings;
  uint32_t slots;  // of each ring
};

// What the warps of a call count together. All but `calls` are 0 between calls.
struct BlockCounters {
  // Assigns blocks to the rings of a piece dynamically: blocks after the first of each ring, by destination rank.
  uint32_t assigned[channel::max_gpu_ranks];
  uint32_t ended_warps;
  uint32_t calls;  // earlier calls with these counters whose codec uses a context
};

// The rings of a reduction process all pieces in step. In each turn every ring processes one block of each piece; the
// block is empty if it lies beyond the end of the piece.
struct Turns {
  uint32_t rings, slots, count;
};

// Values that the rank keeps.
struct LocalCopy {
  const char* from;
  char* to;
  uint64_t bytes;  // 0: there is nothing to copy
};

// Passed by value as a kernel parameter.
struct BlockCall {
  channel::Peers peers;
  channel::ChannelLayout layout;
  BlockCounters* block_counters;  // device memory
  ByteCounters* byte_counters;    // device memory
  ncast_codec codec;
  ncast_codec result_codec;  // of a reduction's results: another one of the same kernels, or RAW; so can be `codec`
  uint64_t raw_bytes;        // bytes of the values that this rank sends to other ranks
  const char* values;        // of which the pieces of `send` are parts; not for point-to-point calls

  Piece send[channel::max_gpu_ranks];  // to each rank
  Piece recv[channel::max_gpu_ranks];  // from each rank

  uint32_t encoded;  // bit mask of the ranks to which `send` is encoded, if the codec can; to the others it is sent raw

  bool in_order;           // the rings of `send` get their blocks in turn, not dynamically
  bool is_point_to_point;  // sends and receives: a peer's progress may depend on another peer having its message
  bool assigns_blocks;     // some ring of `send` has several blocks, assigned through block_counters
  LocalCopy local_copy;    // of a call that does not reduce
  // Where the rank stores what the blocks of `values` decode to on other ranks, at the same offsets. NULL: nowhere.
  char* kept;

  // For direct writes of raw values.
  channel::DirectWrites* direct_writes;                 // device memory
  channel::RegionPlace places[channel::max_gpu_ranks];  // destinations of the pieces of `recv`
  uint32_t invited_peers, inviting_peers;               // bit masks: may write directly here; invite this rank

  // Bit mask of the rank whose piece of `recv` is relayed while it is received.
  uint32_t relayed;
  // This rank's piece of a reduction, to be reduced with the pieces that the others send. 0 bytes: none.
  Piece own;
  Piece reduced;  // the result
  // Bit mask of the ranks if all pieces of `send` are the same values and are encoded once for all of them. 0: each has
  // its own blocks.
  uint32_t sent_together;
  // Bit mask of the ranks to which the relayed or reduced piece is sent, and the first ring for relayed pieces.
  uint32_t forward;
  uint32_t first_forward_ring;
  ncast_redop op;
  Factor factor;  // if op is operation::scaled_sum
  Turns turns;
  bool gathers;  // results of the other ranks are received as pieces of `recv`

  // Last, because only one warp needs it: loading it into the constant cache would delay the others.
  channel::AnnouncedCall announced;
};

}  // namespace narrowcast::executor::cuda
