// Calls by packets (packets.h) as numbers: what fits, and how many CTAs and warps do it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace narrowcast::collective::cuda {

enum class PacketOperation : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter
};
constexpr bool reduces(PacketOperation operation) {
  return operation == PacketOperation::all_reduce || operation == PacketOperation::reduce_scatter ||
         operation == PacketOperation::reduce;
}

inline constexpr uint32_t most_packet_warps = 16;  // of a CTA

// Of each rank's scratch, at a multiple of 128 there, the same offset on all ranks; zeroed before the first call.
size_t packet_scratch_bytes(int ranks);

// `count` in bytes, at most; the same on all ranks.
uint64_t most_packet_bytes(PacketOperation operation, int ranks);

// How a call runs. two_shot is the same on all ranks: reduce a piece each, then gather the pieces (all_reduce only);
// CTAs (at most 64) and their warps (at most 16) may differ.
struct PacketShape {
  bool two_shot;
  uint32_t ctas, warps;
};
// bytes: of `count` values; ranks: 2 or more. max_ctas 0: as many as there may be.
PacketShape choose_packet_shape(PacketOperation operation, uint64_t bytes, int ranks, uint32_t max_ctas);
// all_reduce is one-shot up to here, two-shot beyond.
uint64_t most_one_shot_bytes(int ranks);
bool is_possible(const PacketShape& shape, PacketOperation operation, uint64_t bytes, int ranks);

// Of two shots, every rank's piece but the last, which is shorter; and the rows of a piece.
uint64_t two_shot_piece_bytes(uint64_t bytes, int ranks);
uint32_t packet_rows_of(bool two_shot, uint64_t bytes, int ranks);

}  // namespace narrowcast::collective::cuda
