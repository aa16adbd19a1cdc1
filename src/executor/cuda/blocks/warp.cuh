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

// The earlier calls, for context_of(). Each warp loads it once, when it begins.
template <typename Codec>
__device__ uint32_t earlier_calls(const BlockCall& call) {
  return device::UsesContext<Codec> ? call.block_counters->calls : 0;
}
// The context of a block that is part of these values of the rank, or of reduced values in its place.
template <typename Codec>
__device__ device::BlockContext context_of(const BlockCall& call, uint32_t earlier_calls, const char* block,
                                           const char* values, uint32_t stage) {
  if constexpr (!device::UsesContext<Codec>) return {};
  return {static_cast<uint64_t>(block - values) / device::value_bytes<Codec>, earlier_calls,
          static_cast<uint32_t>(call.peers.rank), stage};
}

// Each of the `warps` warps that may encode calls this when it ends. The last one resets the block counters, and the
// function returns true for it. Calls that use none of the counters need not wait for the fence and the atomic.
template <typename Codec>
__device__ bool end_warp(const BlockCall& call, uint32_t warps, bool is_needed, int thread) {
  if (thread != 0 || (!is_needed && !device::UsesContext<Codec>)) return false;
  __threadfence();
  BlockCounters& counters = *call.block_counters;
  if (atomicAdd(&counters.ended_warps, 1u) + 1 != warps) return false;
  for (uint32_t& assigned : counters.assigned) assigned = 0;
  counters.ended_warps = 0;
  if (device::UsesContext<Codec>) ++counters.calls;
  return true;
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
