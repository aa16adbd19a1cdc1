// How calls by blocks are cut: into pieces, blocks and rings, and the CTAs and warps that serve them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "narrowcast/types.h"

namespace narrowcast::select {

// Warps of a CTA for each role. One more raises the flags.
struct MoveWarps {
  uint32_t senders, receivers, copiers;
  constexpr uint32_t all() const { return senders + receivers + copiers + 1; }
};
// What stays on the rank needs few copiers: memory is several times as fast as the links.
constexpr MoveWarps move_warps(uint32_t block_bytes) {
  return block_bytes > 4096 ? MoveWarps{4, 4, 3} : MoveWarps{8, 8, 3};
}

// Of a reduction. Registers limit them, half of which are a warp's sums. Sums of one-byte values need twice the
// registers, blocks of float64 twice the shared memory.
constexpr uint32_t reduce_warps(uint32_t block_bytes, size_t value_bytes) {
  return block_bytes > 4096 || value_bytes == 1 ? 8 : 16;
}
// The one that raises the flags: in the midst of the others.
constexpr uint32_t signal_warp_of(uint32_t warps) { return warps / 8 * 4; }
// All others have a ring each.
constexpr uint32_t reduce_rings(uint32_t warps) { return warps - 1; }

// A CTA has an SM for itself, and a call at most 64 of them: what a GPU computes beside it keeps the other SMs.
inline constexpr uint32_t most_block_ctas = 64;
inline constexpr size_t most_shared_bytes = 224 * 1024;  // of an SM's
// Of a thread that moves values. Those of one that reduces follow from the kernel's launch bounds.
constexpr uint32_t most_move_registers(uint32_t block_bytes) { return block_bytes > 4096 ? 120 : 96; }
// A warp stays in one of the four parts of its SM, each of which has a quarter of the 65536 registers, and a CTA's
// warps are dealt to the parts in turn.
constexpr bool registers_suffice(uint32_t warps, uint32_t registers) {
  return (warps + 3) / 4 * 32 * registers <= 65536 / 4;
}
static_assert(registers_suffice(move_warps(4096).all(), most_move_registers(4096)));
static_assert(registers_suffice(move_warps(8192).all(), most_move_registers(8192)));
// On a GPU with so many SMs: all CTAs of a call have to run at the same time, of two communicators, whichever comes
// first on each rank.
constexpr uint32_t ctas_that_fit(uint32_t sms) { return std::clamp<uint32_t>(sms / 2, 1, most_block_ctas); }
// Of collectives that move pieces of more bytes than these, what stays on the rank has some of a call's CTAs for
// itself: on an SM that writes to peers a warp copies half as fast. Eight H200 SMs copy as fast as links carry values
// as they are, twelve as fast as coded ones; the other CTAs move as much as all did.
inline constexpr uint64_t most_bytes_of_copiers = uint64_t{16} << 20;
constexpr uint32_t own_copy_ctas(ncast_codec codec) { return codec == NCAST_CODEC_RAW ? 8 : 12; }
// Of a channel: two sets for the warps of a broadcast that pass values on, or one for those that reduce.
constexpr uint32_t rings_of_ctas(uint32_t ctas) { return ctas * 16; }

// Where payloads go through host memory: every waiting warp reads flags over the host link, which few warps fill.
inline constexpr uint32_t most_ctas_over_host = 16;

// Bytes of a block of this dtype under the codec.
inline uint32_t block_bytes(ncast_dtype dtype, ncast_codec codec) {
  return codec::block_type(dtype, codec::effective_codec(dtype, codec)).block_bytes;
}

// How many rings share a piece of so many bytes, by what both its ends know: the warps that there may be for them.
constexpr uint32_t rings_of(uint64_t bytes, uint32_t block_bytes, uint32_t warps) {
  const uint64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  return static_cast<uint32_t>(blocks < warps ? blocks : warps);
}
// The same for a reduction, whose rings go through their blocks in step: no more than are busy to the end.
constexpr uint32_t rings_in_step(uint64_t bytes, uint32_t block_bytes, uint32_t warps) {
  const uint64_t blocks = (bytes + block_bytes - 1) / block_bytes;
  const uint64_t turns = (blocks + warps - 1) / warps;
  return turns == 0 ? 0 : static_cast<uint32_t>((blocks + turns - 1) / turns);
}
// How many turns before it is reduced a block is sent, and after how many results are taken, where rings have so many
// slots: in few of them, what is sent ahead would wait for room that is made after it.
constexpr uint32_t turns_ahead(uint32_t slots) { return slots >= 4 ? 1 : 0; }
// How many of a ring's slots such a piece uses. In few of them payloads stay in the receiver's L2 cache; a long piece
// is worth more room between its ends. Measured between four H200.
constexpr uint32_t slots_of(uint64_t bytes, uint32_t block_bytes, uint32_t rings, uint32_t slots) {
  uint32_t used = slots;
  while (used > 4 && bytes < uint64_t{2} * used * rings * block_bytes) used /= 2;
  return used;
}
// The CTAs for them: as many as there are rings, so that few blocks go to different SMs.
constexpr uint32_t ctas_of(uint32_t rings, uint32_t max_ctas) { return rings < max_ctas ? rings : max_ctas; }

// Values of pieces from here on are written straight to where they end up, if they may be: shorter ones are there,
// through slots, about when the invitation to do so would be. Measured between two H200.
inline constexpr uint64_t least_straight_bytes = uint64_t{4} << 20;

// How many of the warps that send have rings of a piece, of which there are so many with all these rings together; none
// has rings of two pieces.
constexpr uint32_t warps_of_piece(uint32_t rings, uint32_t all_rings, uint32_t pieces, uint32_t warps) {
  return all_rings <= warps ? rings : 1 + (warps - pieces) * rings / all_rings;
}

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

}  // namespace narrowcast::select
