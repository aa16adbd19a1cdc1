// From a checked call to the pieces that the block kernels send, receive, reduce and pass on.
#pragma once

#include <cstdint>

#include "executor/call.h"
#include "executor/cuda/blocks/call.h"
#include "select/block_split.h"

namespace narrowcast::executor::cuda {

// How a kernel is launched: CTAs, those of a cluster, and warps and shared memory of a CTA.
struct Grid {
  uint32_t ctas, cluster_ctas, warps, shared_bytes;
};

// Divides the pieces of a call into rings, as decided.
class Rings {
 public:
  // layout: where the slots of the rings are. over_host: in host memory.
  Rings(const BlockShape& shape, const channel::ChannelLayout& layout, bool over_host)
      : shape_(shape), slots_(layout.slots_of(shape.block_bytes)), over_host_(over_host) {}
  Piece piece(const void* values, uint64_t bytes) const;
  // For a reduction whose largest piece has this size. gathers: the same rings carry the results.
  Turns turns(uint64_t bytes, bool gathers) const;
  // Of a kernel with these pieces, if it is one of `kernels` concurrent kernels of the call.
  Grid grid(const BlockCall& call, uint32_t kernels = 1) const;

  uint32_t block_bytes() const { return shape_.block_bytes; }
  uint32_t most_rings() const { return shape_.most_rings(); }  // rings of a piece
  bool relays() const { return shape_.relays(); }

 private:
  BlockShape shape_;
  uint32_t slots_;
  bool over_host_;
};

// Sets the pieces of a collective that only moves data, for moves->peers.rank and moves->codec. In a broadcast to
// several ranks each receiver gets one piece from the root and relays it to the others, so the root sends every value
// once, as in "Bandwidth optimal all-reduce algorithms for clusters of workstations" (Patarasu, Yuan, 2009).
void cut_moves(const Call& call, const Rings& rings, BlockCall* moves);
// The same for a collective that reduces.
void cut_reduction(const Call& call, const Rings& rings, BlockCall* reduction);

// Whether some ring of `send` gets several blocks, and not in turn.
bool assigns_blocks(const BlockCall& call, uint32_t block_bytes);

// Bytes of the values that a rank puts into slots or writes to other ranks.
uint64_t sent_bytes(const BlockCall& call);

}  // namespace narrowcast::executor::cuda
