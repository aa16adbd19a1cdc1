#include "select/block_split.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "plan/steps.h"

namespace narrowcast::select {
namespace {

// With several peers the root of a reduction only receives the results, which keeps it busy.
int idle_rank(Operation operation, int ranks, int root) {
  const bool excludes_root =
      operation == Operation::broadcast ? ranks > 1 : operation == Operation::reduce && ranks > 2;
  return excludes_root ? root : -1;
}

// Plans that combine all values in rank order in one step are the only ones whose results do not depend on the way a
// call runs.
const char* plan_of(Operation operation, int ranks) {
  // The root sends every value once, and the receivers pass the pieces on to each other.
  if (operation == Operation::broadcast && ranks > 2) return "relay";
  // The root only receives results, except between two ranks.
  if (operation == Operation::reduce && ranks > 1) return "relay";
  return plan::has_plans(operation) ? "all_pairs" : nullptr;
}

// The sizes of the pieces that the busiest rank sends or receives. In a reduction every ring works on all of them.
std::vector<uint64_t> pieces_of_busiest_rank(const CallShape& shape, uint32_t block_bytes) {
  switch (shape.operation) {
    case Operation::send:
    case Operation::recv: return {shape.bytes};
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::all_reduce: {
      const RankPieces cut(shape.operation, shape.bytes, shape.ranks, 0, block_bytes);
      std::vector<uint64_t> pieces;
      pieces.reserve(static_cast<size_t>(shape.ranks));
      for (int rank = 0; rank < shape.ranks; ++rank) pieces.push_back(cut.bytes(rank));
      return pieces;
    }
    default: return std::vector<uint64_t>(static_cast<size_t>(shape.ranks) - 1, shape.bytes);
  }
}

// Whether the local part may be so long that other CTAs copy it. The ranks do not know each other's counts of an
// all_to_all_v.
bool may_copy_beside(const CallShape& shape) {
  if (reduces(shape.operation) || is_point_to_point(shape.operation)) return false;
  return shape.operation == Operation::all_to_all_v || shape.bytes > most_bytes_of_copiers;
}

// Whether `warps` warps have room for all rings that are sent, 32 for each warp, if none serves two pieces.
bool suffice_separately(std::span<const uint32_t> sent, uint32_t all_rings, uint32_t warps) {
  const auto pieces = static_cast<uint32_t>(std::ranges::count_if(sent, [](uint32_t rings) { return rings != 0; }));
  return pieces <= warps && std::ranges::all_of(sent, [&](uint32_t rings) {
           return rings == 0 || rings <= 32 * warps_of_piece(rings, all_rings, pieces, warps);
         });
}

}  // namespace

RankPieces::RankPieces(Operation operation, uint64_t bytes, int ranks, int root, uint32_t block_bytes)
    : idle_(idle_rank(operation, ranks, root)),
      bytes_(bytes),
      blocks_((bytes + block_bytes - 1) / block_bytes),
      pieces_(static_cast<uint64_t>(idle_ < 0 ? ranks : ranks - 1)),
      block_bytes_(block_bytes) {}

BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec) {
  const char* const plan = plan_of(shape.operation, shape.ranks);
  const std::vector<uint64_t> pieces = pieces_of_busiest_rank(shape, block_bytes(shape.dtype, codec));
  const uint64_t largest = pieces.empty() ? 0 : std::ranges::max(pieces);
  const uint32_t max_ctas = most_ctas(shape.link, codec, shape.max_ctas, shape.shared_bytes);
  if (reduces(shape.operation)) {
    BlockShape blocks = reduction_shape(shape.dtype, codec, largest, max_ctas,
                                        shape.clusters && shape.operation == Operation::all_reduce, shape.shared_bytes);
    blocks.plan = plan;
    return blocks;
  }
  BlockShape blocks{};
  blocks.plan = plan;
  blocks.codec = codec;
  blocks.block_bytes = block_bytes(shape.dtype, codec);
  const MoveWarps warps =
      MoveWarps::of(move_warps(shape.shared_bytes, blocks.block_bytes).all(), sends_together(shape.operation, codec));
  blocks.warps = warps.all();
  blocks.piece_warps = warps.senders;
  blocks.recv_warps = warps.receivers;
  blocks.memory_bytes = cta_memory_bytes(warps.with_buffers(), blocks.block_bytes, 0);
  blocks.max_ctas = max_ctas;
  const bool copies = !keeps_decoded(shape.operation, codec);
  if (copies && may_copy_beside(shape)) {
    const uint32_t copy_ctas = own_copy_ctas(codec);
    blocks.max_ctas = std::min(max_ctas, most_block_ctas - copy_ctas);
    if (max_ctas == most_block_ctas) blocks.copy_ctas = copy_ctas;
  }

  blocks.rings = rings_of(largest, blocks.block_bytes, blocks.most_rings());
  std::vector<uint32_t> rings;
  rings.reserve(pieces.size());
  for (const uint64_t bytes : pieces) rings.push_back(rings_of(bytes, blocks.block_bytes, blocks.most_rings()));
  const uint64_t kept_bytes = copies && shape.bytes <= most_bytes_of_copiers ? shape.bytes : 0;
  blocks.ctas = ctas_of_kernel(blocks, {.sent = rings, .kept_bytes = kept_bytes});
  return blocks;
}

BlockShape reduction_shape(ncast_dtype dtype, ncast_codec codec, uint64_t piece_bytes, uint32_t max_ctas, bool clusters,
                           uint32_t shared_bytes) {
  BlockShape blocks{};
  blocks.codec = codec;
  blocks.block_bytes = block_bytes(dtype, codec);
  blocks.warps = reduce_warps(shared_bytes, blocks.block_bytes, ncast_dtype_bytes(dtype));
  blocks.piece_warps = blocks.recv_warps = reduce_rings(blocks.warps);
  blocks.memory_bytes = cta_memory_bytes(blocks.piece_warps, blocks.block_bytes, reducing_state_bytes);
  blocks.max_ctas = max_ctas;
  blocks.clustered = clusters && piece_bytes >= min_clustered_bytes && max_ctas >= cluster_ctas;
  if (blocks.clustered) blocks.max_ctas = std::min(max_ctas, most_clustered_ctas) / cluster_ctas * cluster_ctas;
  blocks.rings = rings_in_step(piece_bytes, blocks.block_bytes, blocks.most_rings());
  blocks.ctas = ctas_of(blocks.rings, blocks.max_ctas);
  return blocks;
}

uint32_t ctas_of_kernel(const BlockShape& shape, const KernelEnds& ends, uint32_t kernels) {
  const auto kept = static_cast<uint32_t>(std::min<uint64_t>(ends.kept_bytes / shape.block_bytes, shape.max_ctas));
  const uint32_t sent = std::accumulate(ends.sent.begin(), ends.sent.end(), 0u);
  // One end for each thread.
  const auto ctas_for = [](uint32_t rings, uint32_t warps) { return (rings + 32 * warps - 1) / (32 * warps); };
  uint32_t ctas = std::max({ctas_of(std::max({sent, ends.received, kept, 1u}), std::max(shape.max_ctas / kernels, 1u)),
                            ctas_for(sent, shape.piece_warps), ctas_for(ends.received, shape.recv_warps)});
  while (ends.one_piece_per_warp && !suffice_separately(ends.sent, sent, ctas * shape.piece_warps)) ++ctas;
  return ctas;
}

}  // namespace narrowcast::select
