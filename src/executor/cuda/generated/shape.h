// The shape of a call of a generated kernel: how many CTAs, and how its warps divide the blocks. All ranks compute the
// same.
#pragma once

#include <algorithm>
#include <cstdint>

#include "channel/packet/packet_area.h"
#include "executor/cuda/generated/compile.h"
#include "select/block_shape.h"
#include "select/packet_shape.h"

namespace narrowcast::executor::cuda::generated {

// Distance between the chunks of a piece of `count` values, in bytes: docs/design/plans.md, "Buffers". Kernels of the
// operations get whole blocks of encoded values, as the operations do: only those are encoded, and a call of one block
// has fewer messages.
inline uint64_t chunk_bytes_of(const CompiledPlan& plan, uint64_t count) {
  const Program& program = plan.program;
  const uint64_t bytes = (count + program.chunks - 1) / program.chunks * ncast_dtype_bytes(program.dtype);
  const bool is_coded = program.codec != NCAST_CODEC_RAW;
  const uint64_t unit = plan.blocks.pieces && is_coded ? program.block_bytes : 16;
  return (bytes + unit - 1) / unit * unit;
}
// Bytes of the values of a chunk.
constexpr uint64_t bytes_of_chunk(uint64_t piece_bytes, uint64_t chunk_bytes, uint32_t chunk) {
  const uint64_t begin = std::min(piece_bytes, chunk * chunk_bytes);
  return std::min(piece_bytes - begin, chunk_bytes);
}

// A number of a call by packets.
inline uint32_t value_of(PacketWord word, uint64_t piece_bytes, uint64_t chunk_bytes) {
  const ChunkRef chunk{word.value};
  switch (word.kind) {
    case PacketWord::offset:
      return static_cast<uint32_t>(chunk.piece() * piece_bytes + std::min(chunk.chunk() * chunk_bytes, piece_bytes));
    case PacketWord::bytes: return static_cast<uint32_t>(bytes_of_chunk(piece_bytes, chunk_bytes, chunk.chunk()));
    default: return word.value;
  }
}

// Sets with which ranks a rank exchanges no messages in a call by packets.
inline void set_tokens(const Program& program, int rank, PlanPacketCall* call) {
  const uint32_t others = ((1u << program.rank_count()) - 1) & ~(1u << rank);
  uint32_t to = others, from = others;
  for (const Message& message : program.messages) {
    if (message.from == rank) to &= ~(1u << message.to);
    if (message.to == rank) from &= ~(1u << message.from);
  }
  call->tokens_to = static_cast<uint16_t>(to);
  call->tokens_from = static_cast<uint16_t>(from);
}

// The most warps of a group.
inline uint32_t most_warps(const Program& program, const BlockSource& source, uint32_t max_ctas, uint32_t rings) {
  return std::min(source.workers * max_ctas / program.groups(), rings / program.rings);
}

struct PlanShape {
  uint32_t ctas, warps, slots;
};
// blocks: of a chunk. max_slots: of a ring, for blocks of this size.
inline PlanShape shape_of(const Program& program, const BlockSource& source, uint32_t blocks, uint32_t max_ctas,
                          uint32_t rings, uint32_t max_slots, bool over_host) {
  const uint32_t groups = program.groups();
  // Blocks of short calls go to different SMs. Groups have as few warps as need the same number of turns.
  const uint32_t ctas = static_cast<uint32_t>(std::min<uint64_t>(max_ctas, uint64_t{blocks} * groups));
  const uint32_t most = std::max(std::min(source.workers * ctas / groups, rings / program.rings), 1u);
  const uint32_t warps = select::rings_in_step(uint64_t{blocks} * program.block_bytes, program.block_bytes, most);
  // Rings with several messages of a micro-batch use all slots: their ends wait for each other several times in a turn.
  const uint32_t slots = program.shares_rings ? max_slots
                                              : select::slots_of(uint64_t{blocks} * program.block_bytes,
                                                                 program.block_bytes, warps, max_slots, over_host);
  return {ctas, warps, std::max(slots, program.min_slots)};
}

struct PlanPacketShape {
  uint32_t ctas, warps, rows, delay;  // no CTAs: the call cannot run by packets
};
template <typename Packet>
PlanPacketShape packet_shape_of(const CompiledPlan& plan, uint64_t chunk_bytes, uint32_t max_ctas) {
  const PacketSource& source = plan.packets;
  const int ranks = plan.program.rank_count();
  if (chunk_bytes > channel::LinePacket::max_buffer_bytes) return {};
  const auto rows = static_cast<uint32_t>((chunk_bytes + Packet::row_bytes - 1) / Packet::row_bytes);
  if (rows * source.messages > channel::packet_rows<Packet>(ranks)) return {};
  // As in choose_packet_shape(): the fewest turns, equally many jobs in each, and few warps in a CTA.
  constexpr uint32_t few_warps = 4;
  const auto quotient_up = [](uint32_t a, uint32_t b) { return (a + b - 1) / b; };
  const uint32_t jobs = rows * source.strands, most_ctas = std::min(max_ctas, channel::max_packet_ctas);
  const uint32_t turns = quotient_up(jobs, most_ctas * select::most_packet_warps(plan.program.reduces));
  const uint32_t warps = std::max(quotient_up(jobs, turns * most_ctas), std::min(jobs, few_warps));
  const uint32_t ctas = std::min(most_ctas, quotient_up(jobs, warps)), all = ctas * warps;
  return {ctas, warps, rows, jobs <= all ? 0 : all * quotient_up(source.strands, all)};
}

}  // namespace narrowcast::executor::cuda::generated
