// How calls by blocks are cut: into pieces, blocks and lanes, and the CTAs and warps that serve them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::collective::cuda {

// Warps of a CTA for each role. One more raises the flags.
struct MoveWarps {
  uint32_t senders, receivers;
  constexpr uint32_t all() const { return senders + receivers + 1; }
};
struct ReduceWarps {
  uint32_t senders, reducers, receivers;
  constexpr uint32_t all() const { return senders + reducers + receivers + 1; }
};
constexpr MoveWarps move_warps(uint32_t block_bytes) { return block_bytes > 4096 ? MoveWarps{4, 4} : MoveWarps{8, 8}; }

// Of a reduction, whatever its roles' shares: registers limit them, half of which are a reducing warp's sums. Sums of
// one-byte values need twice the registers, blocks of float64 twice the shared memory.
constexpr uint32_t all_reduce_warps(uint32_t block_bytes, size_t value_bytes) {
  return block_bytes > 4096 || value_bytes == 1 ? 8 : 16;
}
// The one that raises the flags. It has little to do, and shares its quarter of the SM with the first warps, of which there
// are most.
constexpr uint32_t signal_warp_of(uint32_t warps) { return warps * 3 / 4 / 4 * 4; }

// Shares by what the roles have to do, measured between two H200. passes_on: results go to other ranks, and theirs come.
constexpr ReduceWarps reduce_warps(bool passes_on, ncast_codec codec, uint32_t block_bytes, size_t value_bytes) {
  if (all_reduce_warps(block_bytes, value_bytes) == 8) return passes_on ? ReduceWarps{2, 3, 2} : ReduceWarps{3, 4, 0};
  if (codec == NCAST_CODEC_RAW) return passes_on ? ReduceWarps{4, 8, 3} : ReduceWarps{3, 12, 0};
  return passes_on ? ReduceWarps{4, 8, 3} : ReduceWarps{6, 9, 0};
}

// What the kernels' CTAs may take of an SM's shared memory: all that Hopper and Blackwell's large chips have for one.
inline constexpr size_t most_shared_bytes = 227 * 1024;

inline constexpr uint32_t most_block_ctas = 64;
// Of a channel: two sets for the reducing warps that pass results on, which is more than others need.
constexpr uint32_t lanes_of_ctas(uint32_t ctas) { return ctas * 16; }

// Where payloads go through host memory: every waiting warp reads flags over the host link, which few warps fill.
inline constexpr uint32_t most_ctas_over_host = 16;

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
// Every rank that a piece goes to or comes from needs a warp at least.
constexpr uint32_t least_ctas(uint32_t warps, int ranks) { return (static_cast<uint32_t>(ranks) + warps - 1) / warps; }

// Values of pieces from here on are written straight to where they end up, if they may be: shorter ones are there, through
// slots, about when the invitation to do so would be. Measured between two H200.
inline constexpr uint64_t least_straight_bytes = uint64_t{4} << 20;

// A vector cut into a piece a rank, in whole blocks but for the last.
class BlockPieces {
 public:
  BlockPieces(uint64_t bytes, int ranks, uint32_t block_bytes)
      : bytes_(bytes), ranks_(static_cast<uint64_t>(ranks)), block_bytes_(block_bytes) {}
  uint64_t first(int rank) const {
    const uint64_t blocks = (bytes_ + block_bytes_ - 1) / block_bytes_;
    return std::min(bytes_, blocks * static_cast<uint64_t>(rank) / ranks_ * block_bytes_);
  }
  uint64_t bytes(int rank) const { return first(rank + 1) - first(rank); }

 private:
  uint64_t bytes_, ranks_;
  uint32_t block_bytes_;
};

}  // namespace narrowcast::collective::cuda
