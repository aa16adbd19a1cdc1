// One rank's part in a call that moves data by blocks: what goes to each rank, what comes from each, and what is reduced.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "channel/cuda/memory_channel.h"
#include "channel/cuda/peers.h"
#include "narrowcast/types.h"

namespace narrowcast::collective::cuda {

// Consecutive values, and the lanes that share their blocks: lane l begins with block l.
struct Piece {
  char* values;  // read only where it is sent
  uint64_t bytes;
  uint32_t lanes;
};

// Which blocks of each piece have been taken by a lane beyond the first of each; all 0 between calls.
struct Claims {
  uint32_t taken[channel::max_gpu_ranks];  // by the rank that the piece goes to; one's own if all get the same
  uint32_t ended;                          // warps
};

// By value in a kernel's parameters.
struct BlockCall {
  channel::Peers peers;
  channel::ChannelLayout layout;
  unsigned long long* wire_bytes;  // adds up what this rank put into slots; device memory
  Claims* claims;                  // device memory

  Piece send[channel::max_gpu_ranks];  // to each rank
  Piece recv[channel::max_gpu_ranks];  // from each rank
  bool send_same;                      // every rank that is sent something gets the same values: they are encoded once

  // A reduction of pieces that the other ranks send as this rank's `send` pieces go to them. None if reduced.bytes is 0.
  Piece own;
  Piece reduced;     // the result
  uint32_t forward;  // the ranks, as bits, that get the result as well: from these lanes on ...
  uint32_t first_forward_lane;
  ncast_redop op;
};

// Warps of a CTA for each role. A reducing warp does most for a block; three in eight of the registers are its sums.
// One more raises the flags.
struct MoveWarps {
  uint32_t senders, receivers;
  constexpr uint32_t all() const { return senders + receivers + 1; }
};
struct ReduceWarps {
  uint32_t senders, reducers, receivers;
  constexpr uint32_t all() const { return senders + reducers + receivers + 1; }
};
constexpr MoveWarps move_warps(uint32_t block_bytes) { return block_bytes > 4096 ? MoveWarps{4, 4} : MoveWarps{8, 8}; }
// Sums of one-byte values need twice the registers, blocks of float64 twice the shared memory.
constexpr ReduceWarps reduce_warps(uint32_t block_bytes, size_t value_bytes) {
  return block_bytes > 4096 ? ReduceWarps{2, 3, 2} : value_bytes == 1 ? ReduceWarps{2, 3, 2} : ReduceWarps{4, 7, 4};
}

inline constexpr uint32_t most_block_ctas = 64;
// Of a channel: two sets for the reducing warps, which is more than those that only move need.
constexpr uint32_t lanes_of_ctas(uint32_t ctas) { return ctas * 14; }

// Bytes of a block of this dtype under the codec.
constexpr uint32_t block_bytes(ncast_dtype dtype, ncast_codec codec) {
  return codec == NCAST_CODEC_WINDOW && dtype == NCAST_FLOAT64 ? 8192 : 4096;
}

// How many lanes share a piece of so many bytes, by what both its ends know: each CTA has `warps` for it.
constexpr uint32_t lanes_of(uint64_t bytes, uint32_t block_bytes, uint32_t warps, uint32_t max_ctas) {
  const uint64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const uint64_t most = uint64_t{warps} * max_ctas;
  return static_cast<uint32_t>(blocks < most ? blocks : most);
}
// The CTAs for them: as many as there are lanes, so that few blocks go to different SMs.
constexpr uint32_t ctas_of(uint32_t lanes, uint32_t max_ctas) { return lanes < max_ctas ? lanes : max_ctas; }

// codec: RAW or WINDOW. ctas: at least those of every piece.
cudaError_t launch_moves(const BlockCall& call, ncast_dtype dtype, ncast_codec codec, uint32_t ctas,
                         cudaStream_t stream);
cudaError_t launch_reduction(const BlockCall& call, ncast_dtype dtype, ncast_codec codec, uint32_t ctas,
                             cudaStream_t stream);

}  // namespace narrowcast::collective::cuda
