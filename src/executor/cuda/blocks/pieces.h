// From a checked call to the pieces that the block kernels send, receive, reduce and pass on.
#pragma once

#include <cstdint>

#include "executor/call.h"
#include "executor/cuda/blocks/call.h"

namespace narrowcast::executor::cuda {

// Cuts the pieces of a call into rings.
class Rings {
 public:
  // dtype, codec: as it is coded. max_ctas: as the ranks have agreed.
  Rings(const Call& call, ncast_dtype dtype, ncast_codec codec, const channel::ChannelLayout& layout,
        uint32_t max_ctas);
  // Of a piece, at most.
  uint32_t most() const { return max_ctas_ * warps_; }
  Piece piece(const void* values, uint64_t bytes) const;
  // Of a reduction whose largest piece has so many bytes. gathers: results go on by the same rings.
  Turns turns(uint64_t bytes, bool gathers) const;
  // Of a kernel that has these pieces, and runs beside others of the same call.
  uint32_t ctas(const BlockCall& call, uint32_t kernels = 1) const;

 private:
  uint32_t block_bytes_, slots_;
  uint32_t agreed_ctas_;  // of all kernels of a call
  uint32_t max_ctas_, warps_;
};

// Fills in the pieces of a collective that only moves data, for moves->peers.rank. codec: as chosen. A broadcast to
// several ranks goes in pieces, each of which its receiver passes on: the root sends every value once, as in "Bandwidth
// optimal all-reduce algorithms for clusters of workstations" (Patarasu, Yuan, 2009).
void cut_moves(const Call& call, ncast_codec codec, const Rings& rings, BlockCall* moves);
// The same for one that reduces.
void cut_reduction(const Call& call, ncast_codec codec, const Rings& rings, BlockCall* reduction);

// Bytes of values that a rank puts into slots, or writes to other ranks.
uint64_t sent_bytes(const BlockCall& call);

}  // namespace narrowcast::executor::cuda
