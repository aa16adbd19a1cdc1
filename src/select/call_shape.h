// What decisions depend on: the part of a call that all ranks know, and what their communicator agreed on.
#pragma once

#include <cstdint>

#include "channel/peer/peers.h"
#include "operation/operation.h"
#include "select/block_shape.h"
#include "select/candidate.h"
#include "select/cost_model.h"

namespace narrowcast::select {

inline constexpr int most_gpu_ranks = channel::max_gpu_ranks;

// bytes: of the largest piece that one rank sends to another; for all_reduce and reduce, of the whole vector. Ranks do
// not know it for all_to_all_v, and no decision depends on it.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  ncast_codec codec;  // as requested
  uint64_t bytes;
  int ranks;
  Link link = Link::nvlink;
  uint32_t max_ctas = most_block_ctas;
  // Only the choice between plans depends on these two.
  ncast_redop redop = NCAST_SUM;
  int root = 0;

  bool operator==(const CallShape&) const = default;
};

// For measurements: use blocks, or packets wherever they are possible.
enum class ForcedTransport : uint32_t { none, packets, blocks };

}  // namespace narrowcast::select
