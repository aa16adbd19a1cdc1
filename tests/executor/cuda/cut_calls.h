// Cuts calls into pieces for all ranks as a launch does, but without a GPU.
#pragma once

#include <vector>

#include "executor/cuda/blocks/pieces.h"

namespace narrowcast::executor::cuda::testing {

// The collectives in which every rank passes the same count.
inline constexpr Operation all_operations[] = {Operation::broadcast,  Operation::reduce,        Operation::gather,
                                               Operation::scatter,    Operation::all_gather,    Operation::all_to_all,
                                               Operation::all_reduce, Operation::reduce_scatter};

// Addresses of the buffers, which are never accessed.
inline char* const send_begin = reinterpret_cast<char*>(uintptr_t{1} << 40);
inline char* const recv_begin = reinterpret_cast<char*>(uintptr_t{2} << 40);

inline channel::ChannelLayout layout_for(int ranks, uint32_t max_ctas, uint32_t shared_bytes) {
  return channel::ChannelLayout(0, ranks, rings_of_ctas(max_ctas, shared_bytes), SIZE_MAX);
}

// shared_bytes: of a CTA.
inline Rings rings_for(const Call& call, ncast_codec codec, int ranks, uint32_t max_ctas,
                       uint32_t shared_bytes = most_shared_bytes) {
  const CallShape shape{.operation = call.operation,
                        .dtype = call.dtype,
                        .codec = codec,
                        .bytes = call.count * ncast_dtype_bytes(call.dtype),
                        .ranks = ranks,
                        .max_ctas = max_ctas,
                        .shared_bytes = shared_bytes};
  return Rings(choose_block_shape(shape, codec), layout_for(ranks, max_ctas, shared_bytes), false);
}

// The parts of all ranks of a collective.
inline std::vector<BlockCall> cut(const Call& call, ncast_codec codec, int ranks, uint32_t max_ctas,
                                  uint32_t shared_bytes = most_shared_bytes) {
  std::vector<BlockCall> all(static_cast<size_t>(ranks));
  const Rings rings = rings_for(call, codec, ranks, max_ctas, shared_bytes);
  for (int rank = 0; rank < ranks; ++rank) {
    BlockCall& part = all[static_cast<size_t>(rank)];
    part = {};
    part.peers.rank = rank;
    part.peers.ranks = ranks;
    part.codec = codec;
    part.layout = layout_for(ranks, max_ctas, shared_bytes);
    if (reduces(call.operation)) {
      cut_reduction(call, rings, &part);
    } else {
      cut_moves(call, rings, &part);
    }
  }
  return all;
}

}  // namespace narrowcast::executor::cuda::testing
