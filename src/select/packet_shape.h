// Calls by packets (packets.h) as numbers: what fits, and how many CTAs and warps do it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "operation/operation.h"

namespace narrowcast::select {

using operation::Operation;

// Of a CTA. Those that reduce hold more registers.
constexpr uint32_t most_packet_warps(bool reduces) { return reduces ? 16 : 32; }

// Of each rank's scratch, at a multiple of 128 there, the same offset on all ranks; zeroed before the first call.
size_t packet_scratch_bytes(int ranks);

// `count` in bytes, at most; the same on all ranks. may_be_lines: stores of 128 bytes arrive whole, as they do by
// NVLink.
uint64_t most_packet_bytes(Operation operation, int ranks, bool may_be_lines);

// How a call runs. two_shot and lines are the same on all ranks: reduce a piece each, then gather the pieces
// (all_reduce only); by packets of 128 bytes, or else of 16. CTAs (at most 64) and their warps may differ.
struct PacketShape {
  bool two_shot;
  uint32_t ctas, warps;
  bool lines = false;
};
// bytes: of `count` values; ranks: 2 or more. max_ctas 0: as many as there may be.
PacketShape choose_packet_shape(Operation operation, uint64_t bytes, int ranks, bool may_be_lines, uint32_t max_ctas);
// all_reduce is one-shot up to here, two-shot beyond.
uint64_t most_one_shot_bytes(int ranks);
bool is_possible(const PacketShape& shape, Operation operation, uint64_t bytes, int ranks);

// Of two shots, every rank's piece but the last, which is shorter; and the rows of a piece.
uint64_t two_shot_piece_bytes(uint64_t bytes, int ranks);
uint32_t packet_rows_of(bool two_shot, bool lines, uint64_t bytes, int ranks);
// What warps take by turns: rows, and where data only move, rows of what goes to each rank.
constexpr uint32_t jobs_of(Operation operation, uint32_t rows, int ranks) {
  return reduces(operation) ? rows : rows * static_cast<uint32_t>(ranks);
}
// Bytes of values that a rank sends others. bytes: of `count` values. root: of the operations that have one.
uint64_t sent_by_packets(Operation operation, const PacketShape& shape, uint64_t bytes, int rank, int ranks, int root);
// Of packets that carry so many bytes of data.
constexpr uint64_t packet_bytes_of(uint64_t bytes, bool lines) { return lines ? bytes / 15 * 16 : bytes / 3 * 4; }

}  // namespace narrowcast::select
