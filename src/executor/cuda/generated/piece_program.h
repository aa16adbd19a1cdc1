// Plans that the kernels of the operations can run: every rank sends a chunk to each peer, and either stores what it
// receives, or reduces it in rank order and may send the result to the peers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "channel/peer/peers.h"
#include "executor/cuda/generated/program.h"

namespace narrowcast::executor::cuda::generated {

// What a rank does, in ChunkRefs.
struct RankChunks {
  using Chunk = std::optional<uint32_t>;

  std::array<Chunk, channel::max_gpu_ranks> send = {}, recv = {};  // by peer
  Chunk own, reduced;         // of a reduction: this rank's source, and where the result is stored
  uint32_t forward = 0;       // bit mask of the ranks to which the result is sent
  Chunk copied_from, copied;  // of a move: the local copy

  // Bit mask of the ranks to which something is sent, if it is the same chunk and there are several.
  uint32_t sent_together() const;
};

struct PieceProgram {
  bool reduces = false;
  std::vector<RankChunks> ranks;

  // Whether results of reductions are sent to other ranks.
  bool passes_results_on() const {
    return std::ranges::any_of(ranks, [](const RankChunks& rank) { return rank.forward != 0; });
  }
};

// Nothing if the program does anything else.
std::optional<PieceProgram> find_pieces(const Program& program);

}  // namespace narrowcast::executor::cuda::generated
