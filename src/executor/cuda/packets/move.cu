// Operations by packets that only move data. A warp's job is a row of what goes to one rank, and the same row of what
// comes from one.
#include "executor/cuda/kernels.h"
#include "executor/cuda/packets/exchange.cuh"
#include "executor/cuda/packets/unit_memory.cuh"

namespace narrowcast::executor::cuda {
namespace {

// In place is allowed where a rank sends only the piece that it keeps, and then nobody writes that piece: no thread
// writes what another has still to read.
//
// In a long call a warp receives a job's row after it has sent a later job's: packets are taken as they come. Nobody
// waits in a circle: what is waited for is sent as a job of the same number, which comes before all that its sender
// waits for later.
template <typename Packet, typename Value>
__global__ void __launch_bounds__(most_packet_warps(false) * 32)
    move_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange) {
  channel::Packets<Packet> packets(peers, exchange.buffer_bytes, exchange.buffer_begin, exchange.mark);
  const channel::RankMask others = ((1u << peers.ranks) - 1) & ~(1u << peers.rank);
  const uint32_t bytes = exchange.piece_bytes;
  const uint32_t warps = blockDim.x / 32, stride = gridDim.x * warps, first = blockIdx.x * warps + threadIdx.x / 32;
  const uint32_t jobs = exchange.rows * static_cast<uint32_t>(peers.ranks);

  const auto send = [&](const Job<Packet>& job) {
    const bool is_own = job.to == peers.rank;
    if (!job.place.is_in(bytes) || !(is_own ? exchange.keeps : (exchange.to >> job.to & 1) != 0)) return;
    const auto unit = load_unit<Value>(exchange.send_piece(job.to), job.place, bytes, exchange.send_aligned);
    packets.begin();
    if (is_own) {
      if (!packets.is_refused())
        store_unit<Value>(exchange.recv_piece(job.to), job.place, bytes, exchange.recv_aligned, unit);
    } else {
      packets.send(job.to, job.place, unit);
    }
  };
  const auto receive = [&](const Job<Packet>& job) {
    if (!job.place.is_in(bytes) || (exchange.from >> job.from & 1) == 0) return true;
    Unit<Packet> unit;
    if (!packets.receive_from(job.from, job.place, unit)) return false;
    store_unit<Value>(exchange.recv_piece(job.from), job.place, bytes, exchange.recv_aligned, unit);
    return true;
  };

  device::wait_for_stream();
#pragma unroll 1
  for (uint32_t job = first; job < jobs + exchange.behind || job == first; job += stride) {
    if (job < jobs) send(Job<Packet>(peers, exchange.rows, job));
    if (job == first) {
      packets.begin();
      packets.send_tokens(others & ~exchange.to);
      packets.advance();
      if (packets.is_refused()) return;
    }
    if (job - exchange.behind < jobs && !receive(Job<Packet>(peers, exchange.rows, job - exchange.behind))) break;
  }
  packets.wait_for_tokens(others & ~exchange.from);
  packets.finish();
}

// Calls body(kernel) for the kernel of these packets and values of so many bytes.
template <typename Body>
cudaError_t with_kernel_of(bool lines, size_t value_bytes, Body body) {
  return channel::with_packet(lines, [&]<typename Packet>() {
    switch (value_bytes) {
      case 1: return body(move_kernel<Packet, uint8_t>);
      case 2: return body(move_kernel<Packet, uint16_t>);
      case 4: return body(move_kernel<Packet, uint32_t>);
      case 8: return body(move_kernel<Packet, uint64_t>);
      default: return cudaErrorInvalidValue;
    }
  });
}

}  // namespace

cudaError_t load_packet_moves() {
  const auto load = [](auto kernel) { return load_kernel(kernel); };
  for (const size_t value_bytes : {1, 2, 4, 8})
    for (const bool lines : {false, true})
      if (const cudaError_t error = with_kernel_of(lines, value_bytes, load)) return error;
  return cudaSuccess;
}

cudaError_t launch_packet_move(const channel::Peers& peers, const Exchange& exchange, size_t value_bytes,
                               const PacketShape& shape, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    return device::launch_early(kernel, shape.ctas, shape.warps, 0, stream, peers, exchange);
  };
  return with_kernel_of(shape.lines, value_bytes, launch);
}

}  // namespace narrowcast::executor::cuda
