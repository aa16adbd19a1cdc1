#include "select/block_split.h"

#include <algorithm>

namespace narrowcast::select {
namespace {

// Pieces that the whole vector is divided into; 1: it is not.
int cut_for(const CallShape& shape) {
  switch (shape.operation) {
    case Operation::all_reduce: return shape.ranks;
    case Operation::reduce: return root_reduces(shape.ranks) ? shape.ranks : shape.ranks - 1;
    case Operation::broadcast: return shape.ranks - 1;
    default: return 1;
  }
}
// Pieces of the rank that sends or receives the most of them.
uint32_t pieces_of(const CallShape& shape) {
  return is_point_to_point(shape.operation) ? 1 : static_cast<uint32_t>(shape.ranks) - 1;
}

}  // namespace

bool root_reduces(int ranks) { return ranks == 2; }

uint32_t piece_warps(Operation operation, ncast_dtype dtype, ncast_codec codec) {
  const uint32_t bytes = block_bytes(dtype, codec);
  return reduces(operation) ? reduce_rings(reduce_warps(bytes, ncast_dtype_bytes(dtype))) : move_warps(bytes).senders;
}

uint32_t block_ctas(Operation operation, ncast_codec codec, uint64_t bytes, uint32_t max_ctas) {
  if (reduces(operation) || is_point_to_point(operation)) return max_ctas;
  const bool is_long = operation == Operation::all_to_all_v || bytes > most_bytes_of_copiers;
  return is_long ? std::min(max_ctas, most_block_ctas - own_copy_ctas(codec)) : max_ctas;
}

BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec) {
  BlockShape blocks{};
  blocks.block_bytes = block_bytes(shape.dtype, codec);
  blocks.warps = reduces(shape.operation) ? reduce_warps(blocks.block_bytes, ncast_dtype_bytes(shape.dtype))
                                          : move_warps(blocks.block_bytes).all();
  uint64_t piece_bytes = shape.bytes;
  if (const int cut = cut_for(shape); cut > 1) {
    const BlockPieces pieces(shape.bytes, cut, blocks.block_bytes);
    piece_bytes = 0;
    for (int piece = 0; piece < cut; ++piece) piece_bytes = std::max(piece_bytes, pieces.bytes(piece));
  }
  const uint32_t max_ctas = block_ctas(shape.operation, codec, shape.bytes, shape.max_ctas);
  const uint32_t warps = max_ctas * piece_warps(shape.operation, shape.dtype, codec);
  if (reduces(shape.operation)) {
    blocks.rings = rings_in_step(piece_bytes, blocks.block_bytes, warps);
    blocks.ctas = ctas_of(blocks.rings, max_ctas);
  } else {
    blocks.rings = rings_of(piece_bytes, blocks.block_bytes, warps);
    blocks.ctas = ctas_of(blocks.rings * pieces_of(shape), max_ctas);
  }
  return blocks;
}

}  // namespace narrowcast::select
