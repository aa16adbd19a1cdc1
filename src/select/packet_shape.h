// How a call runs by packets (channel/packet/packets.cuh): what fits, and with how many CTAs and warps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/packet/packet_area.h"
#include "operation/operation.h"
#include "select/candidate.h"

namespace narrowcast::select {

using channel::PacketForm;
using operation::Operation;

// The maximum number of warps of a CTA. Warps that reduce need more registers.
constexpr uint32_t most_packet_warps(bool reduces) { return reduces ? 16 : 32; }

// Bytes of a rank's scratch memory for packets, at the same offset on all ranks, a multiple of 128. They must be zeroed
// before the first call. in_host: the scratch is in host memory.
size_t packet_scratch_bytes(int ranks, bool in_host);

// The maximum size of a call: bytes of `count` values, the same on all ranks.
uint64_t most_packet_bytes(Operation operation, int ranks, Link link);

struct PacketShape {
  bool two_shot;         // all_reduce: each rank reduces one piece and sends the result; the same on all ranks
  uint32_t ctas, warps;  // at most 64 CTAs of this many warps; may differ between ranks
  PacketForm form = PacketForm::short_packets;  // the same on all ranks
};
// Shots of an all_reduce: as many as are predicted to be fastest or, for measurements, one or two where possible.
enum class Shots : uint8_t { fastest, one, two };
// bytes: of `count` values. ranks: 2 or more. max_ctas: 0: no limit.
PacketShape choose_packet_shape(Operation operation, uint64_t bytes, int ranks, Link link, uint32_t max_ctas,
                                Shots shots = Shots::fastest);
// An all_reduce of more bytes takes two shots, unless the shots are given.
uint64_t most_one_shot_bytes(int ranks, Link link);
// Whether the operation can run by packets in this shape.
bool is_possible(const PacketShape& shape, Operation operation, uint64_t bytes, int ranks);

// The packets of pieces of this size. Only NVLink delivers lines.
PacketForm packet_form(uint64_t piece_bytes, Link link);
// The size of a piece in a two-shot all_reduce. The last rank's piece is shorter.
uint64_t two_shot_piece_bytes(uint64_t bytes, int ranks);
// The rows of packets that a piece occupies.
uint32_t packet_rows_of(bool two_shot, PacketForm form, uint64_t bytes, int ranks);
// The number of jobs that warps take in turn. A job is one row; where data only moves, one row for one rank.
constexpr uint32_t jobs_of(Operation operation, uint32_t rows, int ranks) {
  return reduces(operation) ? rows : rows * static_cast<uint32_t>(ranks);
}
// Bytes of values that a rank sends to others. bytes: of `count` values. root: ignored unless the operation has one.
uint64_t sent_by_packets(Operation operation, const PacketShape& shape, uint64_t bytes, int rank, int ranks, int root);
// Bytes of the packets that carry this many bytes of values.
constexpr uint64_t packet_bytes_of(uint64_t bytes, PacketForm form) {
  switch (form) {
    case PacketForm::words: return bytes * 2;
    case PacketForm::short_packets: return bytes / 3 * 4;
    default: return bytes / 15 * 16;
  }
}

}  // namespace narrowcast::select
