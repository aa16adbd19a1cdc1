// One rank's part in a call that moves data by blocks: what goes to each rank, what comes from each, and what is
// reduced. Host code includes this without CUDA headers; kernels.h declares the kernels' launches.
#pragma once

#include <cstdint>

#include "channel/memory/direct_write.h"
#include "channel/memory/memory_channel.h"
#include "channel/peer/peers.h"
#include "executor/cuda/sent_bytes.h"
#include "narrowcast/types.h"
#include "select/block_shape.h"

namespace narrowcast::executor::cuda {

using namespace select;

// Consecutive values, and the rings that share their blocks: ring i begins with block i.
struct Piece {
  char* values;  // read only where it is sent
  uint64_t bytes;
  uint32_t rings;
  uint32_t slots;  // of each ring
};

// Which blocks of each piece have been taken by a ring beyond the first of each; all 0 between calls.
struct Claims {
  uint32_t taken[channel::max_gpu_ranks];  // by the rank that the piece goes to
  uint32_t ended;                          // warps
};

// The rings of a reduction go through all pieces in step: in each of so many turns every ring has a block of each
// piece, which may be beyond its end.
struct Turns {
  uint32_t rings, slots, count;
};

// Values that stay on the rank.
struct OwnCopy {
  const char* from;
  char* to;
  uint64_t bytes;  // 0: there are none, or they are where they should be
};

// Of a bounded codec in a call whose values all ranks share: the sender stores what its payloads decode to.
struct KeptBlocks {
  const char* from;  // the sender's values
  char* to;          // NULL: nothing is kept
  bool to_all;       // the `send` pieces are the same for all peers: a block is encoded once, and goes to all of them
};

// By value in a kernel's parameters.
struct BlockCall {
  channel::Peers peers;
  channel::ChannelLayout layout;
  Claims* claims;  // device memory
  Sent* sent;      // device memory
  ncast_codec codec;
  uint64_t raw_bytes;  // that this rank sends others: puts into slots, or writes where they end up

  Piece send[channel::max_gpu_ranks];  // to each rank
  Piece recv[channel::max_gpu_ranks];  // from each rank

  bool in_order;     // the rings of `send` get their blocks by turns
  bool of_messages;  // one receiver may wait for what another one does when it has its piece of `send`
  OwnCopy own_copy;  // of a call that only moves

  // Of values that travel as they are: where those of `recv` end up, for peers that write there themselves.
  channel::StraightWrites* straight;  // device memory
  channel::RegionPlace places[channel::max_gpu_ranks];
  uint32_t invites, awaits;  // peers as bits: that are told of it, and that tell this rank of theirs

  // A rank, as a bit, whose piece of `recv` is passed on as it comes.
  uint32_t relayed;
  // A reduction of pieces that the other ranks send as this rank's `send` pieces go to them. None if it has 0 bytes.
  Piece own;
  Piece reduced;  // the result
  // The ranks, as bits, that get what is relayed or reduced as well; and the first of the rings for what is relayed.
  uint32_t forward;
  uint32_t first_forward_ring;
  ncast_redop op;
  Turns turns;
  bool gathers;  // pieces of `recv` come

  // At the end: constant memory that is not cached yet would delay warps that need the fields above.
  KeptBlocks kept;                   // in place of own_copy
  channel::AnnouncedCall announced;  // for one warp
};

}  // namespace narrowcast::executor::cuda
