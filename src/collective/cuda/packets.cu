// Which kernel runs a call by packets, and in what shape.
#include <algorithm>

#include "channel/cuda/packet_area.h"
#include "collective/cuda/packet_exchange.cuh"
#include "collective/cuda/packets.h"

namespace narrowcast::collective::cuda {
namespace {

// To be measured. What one shot sends beyond what two would, in bytes of data a rank, that takes as long as the second
// flight and its polls.
constexpr uint64_t second_shot_bytes = 352 << 10;
// To be measured. A CTA has as few warps as this while there are CTAs for the rest, so that all SMs' paths to the link are
// used.
constexpr uint32_t least_warps = 4;

// Two shots need this, for no rank's piece to be empty: ranks - 1 pieces, rounded up, are less than all of it.
constexpr uint32_t piece_alignment = 128;
constexpr uint64_t least_two_shot_bytes = 16 << 10;
static_assert(least_two_shot_bytes > piece_alignment * channel::max_gpu_ranks * (channel::max_gpu_ranks - 1));

constexpr uint64_t quotient_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint64_t two_shot_piece_bytes(uint64_t bytes, int ranks) {
  return quotient_up(quotient_up(bytes, static_cast<uint64_t>(ranks)), piece_alignment) * piece_alignment;
}
uint64_t one_shot_capacity(int ranks) { return uint64_t{channel::packet_rows(ranks)} * channel::row_bytes; }
// Pieces go through one half of the rows, results through the other.
uint64_t two_shot_capacity(int ranks) { return static_cast<uint64_t>(ranks) * one_shot_capacity(ranks) / 2; }

bool reduces(PacketOperation operation) {
  return operation == PacketOperation::all_reduce || operation == PacketOperation::reduce_scatter ||
         operation == PacketOperation::reduce;
}

bool is_possible(const PacketShape& shape, PacketOperation operation, uint64_t bytes, int ranks) {
  if (shape.ctas < 1 || shape.ctas > channel::most_packet_ctas) return false;
  if (shape.warps < 1 || shape.warps > most_packet_warps) return false;
  if (!shape.two_shot) return bytes <= one_shot_capacity(ranks);
  return operation == PacketOperation::all_reduce && bytes >= least_two_shot_bytes && bytes <= two_shot_capacity(ranks);
}

// Rows of a piece.
uint32_t rows_of(bool two_shot, uint64_t bytes, int ranks) {
  return static_cast<uint32_t>(quotient_up(two_shot ? two_shot_piece_bytes(bytes, ranks) : bytes, channel::row_bytes));
}

Exchange make_exchange(const PacketCall& call, bool two_shot, int rank, int ranks) {
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const uint32_t own = 1u << rank, others = ((1u << ranks) - 1) & ~own, root = 1u << call.root;
  const bool is_root = rank == call.root;
  Exchange exchange{};
  exchange.send = static_cast<const char*>(call.send);
  exchange.recv = static_cast<char*>(call.recv);
  exchange.rows = rows_of(two_shot, bytes, ranks);
  exchange.buffer_rows = channel::packet_rows(ranks);
  exchange.buffer_bytes = channel::packet_buffer_bytes(ranks);
  exchange.piece_bytes = exchange.last_bytes = static_cast<uint32_t>(bytes);
  exchange.to = exchange.from = others;

  // Strides of 0 but where the ranks' pieces differ.
  const uint32_t stride = exchange.piece_bytes;
  switch (call.operation) {
    case PacketOperation::all_reduce:
      if (!two_shot) break;
      exchange.gathers = true;
      exchange.piece_bytes = static_cast<uint32_t>(two_shot_piece_bytes(bytes, ranks));
      exchange.last_bytes = static_cast<uint32_t>(bytes) - static_cast<uint32_t>(ranks - 1) * exchange.piece_bytes;
      exchange.send_stride = exchange.recv_stride = exchange.piece_bytes;
      break;
    case PacketOperation::reduce_scatter: exchange.send_stride = stride; break;
    case PacketOperation::all_to_all: exchange.send_stride = stride; [[fallthrough]];
    case PacketOperation::all_gather:
      exchange.recv_stride = stride;
      exchange.keeps = true;
      break;
    case PacketOperation::scatter: exchange.send_stride = stride; [[fallthrough]];
    case PacketOperation::broadcast:
      exchange.keeps = is_root;
      exchange.to = is_root ? others : 0;
      exchange.from = is_root ? 0 : root;
      break;
    case PacketOperation::gather:
      exchange.recv_stride = stride;
      exchange.keeps = is_root;
      [[fallthrough]];
    case PacketOperation::reduce:
      exchange.to = is_root ? 0 : root;
      exchange.from = is_root ? others : 0;
      break;
  }
  const auto offset = static_cast<uint32_t>(rank);
  if (exchange.keeps && exchange.send + offset * exchange.send_stride == exchange.recv + offset * exchange.recv_stride)
    exchange.keeps = false;
  const auto aligned = [](const void* pieces, uint32_t stride) {
    return ((reinterpret_cast<uintptr_t>(pieces) | stride) & 7) == 0;
  };
  exchange.send_aligned = aligned(exchange.send, exchange.send_stride);
  exchange.recv_aligned = aligned(exchange.recv, exchange.recv_stride);
  return exchange;
}

}  // namespace

size_t packet_scratch_bytes(int ranks) { return channel::packet_area_bytes(ranks); }

uint64_t most_packet_bytes(PacketOperation operation, int ranks) {
  if (ranks == 1) return UINT64_MAX;
  const uint64_t one_shot = one_shot_capacity(ranks);
  return operation == PacketOperation::all_reduce ? std::max(one_shot, two_shot_capacity(ranks)) : one_shot;
}

uint64_t most_one_shot_bytes(int ranks) {
  const uint64_t capacity = one_shot_capacity(ranks);
  if (ranks <= 2) return capacity;
  // One shot sends ranks - 1 times the data, two send 2 (ranks - 1) / ranks.
  const auto n = static_cast<uint64_t>(ranks);
  return std::clamp(second_shot_bytes * n / ((n - 1) * (n - 2)), least_two_shot_bytes, capacity);
}

PacketShape choose_packet_shape(PacketOperation operation, uint64_t bytes, int ranks, uint32_t max_ctas) {
  PacketShape shape{};
  shape.two_shot = operation == PacketOperation::all_reduce && bytes > most_one_shot_bytes(ranks);
  // A warp a row, and where data only move, a row and rank.
  const uint32_t rows = rows_of(shape.two_shot, bytes, ranks);
  const uint32_t jobs = std::max(1u, reduces(operation) ? rows : rows * static_cast<uint32_t>(ranks));
  const uint32_t most_ctas = max_ctas == 0 ? channel::most_packet_ctas : std::min(max_ctas, channel::most_packet_ctas);
  shape.warps =
      std::clamp(static_cast<uint32_t>(quotient_up(jobs, most_ctas)), std::min(jobs, least_warps), most_packet_warps);
  shape.ctas = std::min(most_ctas, static_cast<uint32_t>(quotient_up(jobs, shape.warps)));
  return shape;
}

cudaError_t launch_packets(const channel::Peers& peers, size_t scratch_offset, const PacketCall& call,
                           uint32_t max_ctas, cudaStream_t stream) {
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  if (bytes > most_packet_bytes(call.operation, peers.ranks)) return cudaErrorInvalidValue;
  return launch_packets(peers, scratch_offset, call, choose_packet_shape(call.operation, bytes, peers.ranks, max_ctas),
                        stream);
}

cudaError_t launch_packets(const channel::Peers& peers, size_t scratch_offset, const PacketCall& call,
                           const PacketShape& shape, cudaStream_t stream) {
  const size_t value_bytes = ncast_dtype_bytes(call.dtype);
  const uint64_t bytes = call.count * value_bytes;
  if (bytes == 0) return cudaSuccess;
  if (peers.ranks == 1) {
    if (call.send == call.recv) return cudaSuccess;
    return cudaMemcpyAsync(call.recv, call.send, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  if (!is_possible(shape, call.operation, bytes, peers.ranks)) return cudaErrorInvalidValue;
  channel::Peers areas = peers;
  for (int rank = 0; rank < peers.ranks; ++rank) areas.scratch[rank] += scratch_offset;
  const Exchange exchange = make_exchange(call, shape.two_shot, peers.rank, peers.ranks);
  if (reduces(call.operation))
    return launch_packet_reduction(areas, exchange, call.dtype, call.redop, shape.ctas, shape.warps, stream);
  return launch_packet_move(areas, exchange, value_bytes, shape.ctas, shape.warps, stream);
}

}  // namespace narrowcast::collective::cuda
