// A call of a plan whose kernel is an instance of those of the operations.
#pragma once

#include <cstdint>

#include "executor/cuda/blocks/pieces.h"
#include "executor/cuda/generated/piece_program.h"
#include "select/decider.h"

namespace narrowcast::executor::cuda::generated {

// How the blocks of chunks of this size are divided into rings, CTAs and warps; the same on all ranks.
BlockShape piece_shape_of(const Program& program, const PieceProgram& pieces, uint64_t chunk_bytes,
                          const CommTraits& traits);

// A rank's buffers, and the sizes of the call (shape.h).
struct PlanBuffers {
  const void* input;
  void* output;
  uint64_t piece_bytes, chunk_bytes;
};
// Sets the pieces and the local copy.
void set_pieces(const PieceProgram& pieces, int rank, const PlanBuffers& buffers, const Rings& rings, BlockCall* call);

}  // namespace narrowcast::executor::cuda::generated
