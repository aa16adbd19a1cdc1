// What decisions depend on: the part of a call that all ranks know, and what their communicator agreed on.
#pragma once

#include <cstdint>
#include <optional>

#include "channel/peer/peers.h"
#include "operation/operation.h"
#include "select/block_shape.h"
#include "select/candidate.h"
#include "select/cost_model.h"

namespace narrowcast::select {

inline constexpr int most_gpu_ranks = channel::max_gpu_ranks;

// Whether the input and the output of a call are the same memory. Each rank knows it of its own call only, so all ranks
// must make a call alike if a plan depends on it. Unknown for operations whose input or output some ranks do not have.
enum class Placement : uint8_t { unknown, separate, in_place };

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
  bool clusters = false;                      // every rank's GPU has room for the clusters of two long all-reduces
  uint32_t shared_bytes = most_shared_bytes;  // of a CTA
  // Only the choice between plans depends on these, and error budgets on the reduction.
  ncast_redop redop = NCAST_SUM;
  int root = 0;
  Placement placement = Placement::unknown;
  std::optional<ncast_codec> result_codec = std::nullopt;  // of an all_reduce; nullopt: the same codec
  bool has_levels = false;  // of processes: on several hosts, of which some have several ranks

  bool operator==(const CallShape&) const = default;
};

// For measurements: use blocks, or packets wherever they are possible; for all_reduce also with one or two shots.
enum class ForcedTransport : uint32_t { none, packets, one_shot, two_shot, blocks };
constexpr bool forces_packets(ForcedTransport forced) {
  return forced != ForcedTransport::none && forced != ForcedTransport::blocks;
}

}  // namespace narrowcast::select
