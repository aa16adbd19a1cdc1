// Chooses the kernel of a call by packets.
#include <algorithm>

#include "channel/packet/packet_area.h"
#include "executor/cuda/packets/exchange.cuh"
#include "executor/cuda/packets/launch.h"

namespace narrowcast::executor::cuda {
namespace {

using operation::Operation;

Exchange make_exchange(const PacketCall& call, const PacketShape& shape, int rank, int ranks) {
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  const uint32_t own = 1u << rank, others = ((1u << ranks) - 1) & ~own, root = 1u << call.root;
  const bool is_root = rank == call.root;
  Exchange exchange{};
  exchange.send = static_cast<const char*>(call.send);
  exchange.recv = static_cast<char*>(call.recv);
  exchange.inverse_ranks = static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint32_t>(ranks)) + 1;
  exchange.rows = packet_rows_of(shape.two_shot, shape.form, bytes, ranks);
  exchange.buffer_rows =
      channel::with_packet(shape.form, [&]<typename Packet>() { return channel::packet_rows<Packet>(ranks); });
  exchange.buffer_begin = channel::packet_rows_begin(shape.form, ranks);
  // The number of warps, if a warp has more than one job.
  const uint32_t turn = shape.ctas * shape.warps;
  exchange.recv_delay = jobs_of(call.operation, exchange.rows, ranks) <= turn ? 0 : turn;
  exchange.buffer_bytes = channel::packet_buffer_bytes(ranks, shape.form == PacketForm::words);
  exchange.mark = call.mark;
  exchange.piece_bytes = exchange.last_bytes = static_cast<uint32_t>(bytes);
  exchange.to = exchange.from = others;

  // The stride stays 0 if all ranks have the same piece.
  const uint32_t stride = exchange.piece_bytes;
  switch (call.operation) {
    case Operation::all_reduce:
      if (!shape.two_shot) break;
      exchange.gathers = true;
      exchange.piece_bytes = static_cast<uint32_t>(two_shot_piece_bytes(bytes, ranks));
      exchange.last_bytes = static_cast<uint32_t>(bytes) - static_cast<uint32_t>(ranks - 1) * exchange.piece_bytes;
      exchange.send_stride = exchange.recv_stride = exchange.piece_bytes;
      break;
    case Operation::reduce_scatter: exchange.send_stride = stride; break;
    case Operation::all_to_all: exchange.send_stride = stride; [[fallthrough]];
    case Operation::all_gather:
      exchange.recv_stride = stride;
      exchange.copies_own = true;
      break;
    case Operation::scatter: exchange.send_stride = stride; [[fallthrough]];
    case Operation::broadcast:
      exchange.copies_own = is_root;
      exchange.to = is_root ? others : 0;
      exchange.from = is_root ? 0 : root;
      break;
    case Operation::gather:
      exchange.recv_stride = stride;
      exchange.copies_own = is_root;
      [[fallthrough]];
    case Operation::reduce:
      exchange.to = is_root ? 0 : root;
      exchange.from = is_root ? others : 0;
      break;
    default: break;  // rejected by is_possible()
  }
  const auto offset = static_cast<uint32_t>(rank);
  if (exchange.copies_own &&
      exchange.send + offset * exchange.send_stride == exchange.recv + offset * exchange.recv_stride)
    exchange.copies_own = false;
  const auto aligned = [](const void* pieces, uint32_t stride) {
    return ((reinterpret_cast<uintptr_t>(pieces) | stride) & 7) == 0;
  };
  exchange.send_aligned = aligned(exchange.send, exchange.send_stride);
  exchange.recv_aligned = aligned(exchange.recv, exchange.recv_stride);
  return exchange;
}

}  // namespace

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
  const Exchange exchange = make_exchange(call, shape, peers.rank, peers.ranks);
  const bool fits_short = is_short(exchange) && shape.form != PacketForm::words;
  if (!reduces(call.operation)) {
    return fits_short ? launch_short_move(areas, exchange, shape, stream)
                      : launch_packet_move(areas, exchange, value_bytes, shape, stream);
  }
  // The root of a reduce does not send.
  const bool with_all = call.operation != Operation::reduce;
  if (fits_short && with_all && call.redop == NCAST_SUM && has_short_sum(call.dtype))
    return launch_short_sum(areas, exchange, call.dtype, shape, stream);
  return launch_packet_reduction(areas, exchange, call.dtype, call.redop, shape, stream);
}

}  // namespace narrowcast::executor::cuda
