// What the warps of the hand-written block kernels share: the blocks of pieces, the announcement of the call, counters.
#pragma once

#include "channel/peer/call_check.cuh"
#include "executor/cuda/blocks/call.h"
#include "executor/cuda/blocks/warp_memory.cuh"

namespace narrowcast::executor::cuda {

// The values of one block of a piece. 0 bytes: the piece has no such block.
struct BlockSpan {
  char* values;
  uint32_t bytes;
};
template <uint32_t block_bytes>
__device__ BlockSpan block_of(const Piece& piece, uint32_t block) {
  const uint64_t begin = uint64_t{block} * block_bytes;
  if (begin >= piece.bytes) return {nullptr, 0};
  const uint64_t left = piece.bytes - begin;
  return {piece.values + begin, left < block_bytes ? static_cast<uint32_t>(left) : block_bytes};
}

// One warp of the kernel calls this. The sending warps count wire bytes.
__device__ inline void count_raw_bytes(const BlockCall& call, int lane) {
  if (lane == 0 && call.raw_bytes != 0) atomicAdd(&call.byte_counters->raw_bytes, call.raw_bytes);
}

// One warp of CTA 0 calls this.
__device__ inline channel::CallCheck announce(const BlockCall& call, int lane) {
  return {call.peers, call.announced, call.is_point_to_point, lane};
}

}  // namespace narrowcast::executor::cuda
