// How a call by blocks is divided among rings, CTAs and warps, computed from its shape.
#pragma once

#include <cstdint>

#include "select/block_shape.h"
#include "select/call_shape.h"

namespace narrowcast::select {

struct BlockShape {
  uint32_t block_bytes;  // of values
  uint32_t rings;        // that share the largest piece
  uint32_t ctas, warps;  // warps: of a CTA
};
// codec: as decided. A formula, not a measurement: costs are those of its shapes.
BlockShape choose_block_shape(const CallShape& shape, ncast_codec codec);

// Whether the root of a reduction to it reduces a piece, too. With several peers, receiving keeps it busy.
bool root_reduces(int ranks);
// The warps of a CTA that serve one piece at its sender, or reduce it. codec: as decided.
uint32_t piece_warps(Operation operation, ncast_dtype dtype, ncast_codec codec);
// The CTAs of a call at most, where the ranks agreed on max_ctas. codec: as decided. bytes: the same on all ranks;
// ignored where ranks could differ.
uint32_t block_ctas(Operation operation, ncast_codec codec, uint64_t bytes, uint32_t max_ctas);

}  // namespace narrowcast::select
