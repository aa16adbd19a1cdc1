#include "select/packet_shape.h"

#include <algorithm>

#include "channel/packet/packet_area.h"

namespace narrowcast::select {
namespace {

// One shot sends more bytes than two. The latency of a second shot equals the time for this many bytes per rank.
// Measured between four H200; through host memory, estimated from 3 us and 20 GB/s.
constexpr uint64_t second_shot_bytes(Link link) { return (link == Link::host ? 60 : 440) << 10; }
// The minimum size of a piece that uses packets of 128 bytes. Measured between four H200.
constexpr uint64_t least_line_bytes = 64 << 10;
// A CTA gets more warps than this only when all CTAs are used: more SMs give more paths to the link. Not measured.
constexpr uint32_t least_warps = 4;

// With fewer bytes the last rank's piece could be empty in two shots, because the sizes of pieces are rounded up.
constexpr uint32_t piece_alignment = 128;
constexpr uint64_t least_two_shot_bytes = 16 << 10;
static_assert(least_two_shot_bytes > piece_alignment * channel::max_gpu_ranks * (channel::max_gpu_ranks - 1));

constexpr uint64_t quotient_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// The packets of long pieces.
PacketForm form_of_long(Link link) { return packet_form(UINT64_MAX, link); }

uint64_t row_bytes(PacketForm form) {
  return channel::with_packet(form, []<typename Packet>() { return Packet::row_bytes; });
}
uint64_t one_shot_capacity(int ranks, PacketForm form) {
  return channel::with_packet(form, [&]<typename Packet>() { return channel::packet_rows<Packet>(ranks); }) *
         row_bytes(form);
}
// Pieces use one half of the rows, results the other.
uint64_t two_shot_capacity(int ranks, PacketForm form) {
  return static_cast<uint64_t>(ranks) * one_shot_capacity(ranks, form) / 2;
}
bool takes_two_shots(uint64_t bytes, int ranks, Link link, Shots shots) {
  if (shots == Shots::one && bytes <= one_shot_capacity(ranks, form_of_long(link))) return false;
  if (shots == Shots::two && bytes >= least_two_shot_bytes) return true;
  return bytes > most_one_shot_bytes(ranks, link);
}

}  // namespace

uint64_t two_shot_piece_bytes(uint64_t bytes, int ranks) {
  return quotient_up(quotient_up(bytes, static_cast<uint64_t>(ranks)), piece_alignment) * piece_alignment;
}

PacketForm packet_form(uint64_t piece_bytes, Link link) {
  if (link == Link::host) return PacketForm::words;
  return link == Link::nvlink && piece_bytes >= least_line_bytes ? PacketForm::lines : PacketForm::short_packets;
}

bool is_possible(const PacketShape& shape, Operation operation, uint64_t bytes, int ranks) {
  if (!can_use_packets(operation)) return false;
  if (shape.ctas < 1 || shape.ctas > channel::max_packet_ctas) return false;
  if (shape.warps < 1 || shape.warps > most_packet_warps(reduces(operation))) return false;
  if (!shape.two_shot) return bytes <= one_shot_capacity(ranks, shape.form);
  return operation == Operation::all_reduce && bytes >= least_two_shot_bytes &&
         bytes <= two_shot_capacity(ranks, shape.form);
}

uint32_t packet_rows_of(bool two_shot, PacketForm form, uint64_t bytes, int ranks) {
  return static_cast<uint32_t>(quotient_up(two_shot ? two_shot_piece_bytes(bytes, ranks) : bytes, row_bytes(form)));
}

size_t packet_scratch_bytes(int ranks, bool in_host) { return channel::packet_area_bytes(ranks, in_host); }

uint64_t most_packet_bytes(Operation operation, int ranks, Link link) {
  if (ranks == 1) return UINT64_MAX;
  const PacketForm form = form_of_long(link);
  const uint64_t one_shot = one_shot_capacity(ranks, form);
  return operation == Operation::all_reduce ? std::max(one_shot, two_shot_capacity(ranks, form)) : one_shot;
}

uint64_t most_one_shot_bytes(int ranks, Link link) {
  // Two ranks send the same number of bytes in both, but reduce half as many in two. This pays where a warp would have
  // to reduce more than one row (bench/results/2xh100/2026-11-25_shots.json).
  const PacketForm longest = form_of_long(link);
  if (ranks <= 2)
    return std::min(row_bytes(longest) * channel::max_packet_ctas * most_packet_warps(true),
                    one_shot_capacity(ranks, longest));
  // A rank sends ranks - 1 times the data in one shot, and 2 (ranks - 1) / ranks times in two.
  const auto n = static_cast<uint64_t>(ranks);
  return std::clamp(second_shot_bytes(link) * n / ((n - 1) * (n - 2)), least_two_shot_bytes,
                    one_shot_capacity(ranks, packet_form(0, link)));
}

PacketShape choose_packet_shape(Operation operation, uint64_t bytes, int ranks, Link link, uint32_t max_ctas,
                                Shots shots) {
  PacketShape shape{};
  shape.two_shot = operation == Operation::all_reduce && takes_two_shots(bytes, ranks, link, shots);
  const uint64_t piece_bytes = shape.two_shot ? two_shot_piece_bytes(bytes, ranks) : bytes;
  shape.form = packet_form(piece_bytes, link);
  const uint32_t rows = packet_rows_of(shape.two_shot, shape.form, bytes, ranks);
  const uint32_t jobs = std::max(1u, jobs_of(operation, rows, ranks));
  const uint32_t most_ctas = max_ctas == 0 ? channel::max_packet_ctas : std::min(max_ctas, channel::max_packet_ctas);
  // The fewest turns possible, and equally many jobs in each.
  const uint64_t turns = quotient_up(jobs, most_ctas * most_packet_warps(reduces(operation)));
  shape.warps = std::max(static_cast<uint32_t>(quotient_up(jobs, turns * most_ctas)), std::min(jobs, least_warps));
  shape.ctas = std::min(most_ctas, static_cast<uint32_t>(quotient_up(jobs, shape.warps)));
  return shape;
}

uint64_t sent_by_packets(Operation operation, const PacketShape& shape, uint64_t bytes, int rank, int ranks, int root) {
  const auto others = static_cast<uint64_t>(ranks - 1);
  switch (operation) {
    case Operation::broadcast:
    case Operation::scatter: return rank == root ? others * bytes : 0;
    case Operation::gather:
    case Operation::reduce: return rank == root ? 0 : bytes;
    case Operation::all_reduce: {
      if (!shape.two_shot) return others * bytes;
      // The pieces of the other ranks, and the result of the own piece to each of them.
      const uint64_t piece = two_shot_piece_bytes(bytes, ranks);
      const uint64_t own = rank == ranks - 1 ? bytes - others * piece : piece;
      return bytes - own + others * own;
    }
    default: return others * bytes;
  }
}

}  // namespace narrowcast::select
