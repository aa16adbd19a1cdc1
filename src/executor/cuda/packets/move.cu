// Operations by packets that move data without reducing. A warp's job is to send a row to one rank and to receive the
// same row from one rank.
#include "executor/cuda/kernels.h"
#include "executor/cuda/packets/exchange.cuh"
#include "executor/cuda/packets/unit_memory.cuh"

namespace narrowcast::executor::cuda {
namespace {

// In-place calls are allowed where a rank sends only the piece that it keeps. No thread writes that piece, so no thread
// overwrites data that another thread has not read.
//
// In a long call a warp sends the rows of later jobs before it receives the row of a job, so sending and receiving
// overlap. There is no deadlock: the sender of a row sends it in the job with the same number, before it waits for the
// row of that job or a later one.
template <typename Packet, typename Value>
__global__ void __launch_bounds__(most_packet_warps(false) * 32)
    move_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange) {
  channel::Packets<Packet> packets(peers, exchange.buffer_bytes, exchange.buffer_begin, exchange.mark);
  const channel::RankMask others = ((1u << peers.ranks) - 1) & ~(1u << peers.rank);
  const uint32_t bytes = exchange.piece_bytes;
  const uint32_t warps = blockDim.x / 32, stride = gridDim.x * warps, first = blockIdx.x * warps + threadIdx.x / 32;
  const uint32_t jobs = exchange.rows * static_cast<uint32_t>(peers.ranks);
  const auto job_of = [&](uint32_t number) {
    if constexpr (is_whole_word<Value>) {
      return RowJob<Packet>(peers, exchange, number);
    } else {
      return Job<Packet>(peers, exchange.rows, number);
    }
  };

  const auto load = [&](int rank, UnitPlace<Packet> place) {
    return load_unit<Value>(exchange.send_piece(rank), place, bytes, exchange.send_aligned);
  };
  const auto send_and_copy = [&](const RowJob<Packet>& job) {
    const bool sends = (exchange.to >> job.to & 1) != 0, copies = job.from == peers.rank && exchange.copies_own;
    if (!job.place.is_in(bytes) || !(sends || copies)) return;
    Unit<Packet> unit = load(sends ? job.to : peers.rank, job.place), own;
    const bool has_another = copies && sends && exchange.send_stride != 0;
    if (has_another) own = load(peers.rank, job.place);
    packets.begin();
    if (sends) packets.send(job.to, job.place, unit);
    if (has_another) unit = own;  // not earlier, because a copy waits for the load
    if (copies && !packets.was_stopped())
      store_unit<Value>(exchange.recv_piece(peers.rank), job.place, bytes, exchange.recv_aligned, unit);
  };
  const auto send_or_copy = [&](const Job<Packet>& job) {
    const bool is_own = job.to == peers.rank;
    if (!job.place.is_in(bytes) || !(is_own ? exchange.copies_own : (exchange.to >> job.to & 1) != 0)) return;
    const auto unit = load(job.to, job.place);
    packets.begin();
    if (is_own) {
      if (!packets.was_stopped())
        store_unit<Value>(exchange.recv_piece(job.to), job.place, bytes, exchange.recv_aligned, unit);
    } else {
      packets.send(job.to, job.place, unit);
    }
  };
  const auto receive = [&](const auto& job) {
    if (!job.place.is_in(bytes) || (exchange.from >> job.from & 1) == 0) return true;
    Unit<Packet> unit;
    if (!packets.receive_from(job.from, job.place, unit)) return false;
    store_unit<Value>(exchange.recv_piece(job.from), job.place, bytes, exchange.recv_aligned, unit);
    return true;
  };

  device::wait_for_stream();
#pragma unroll 1
  for (uint32_t job = first; job < jobs + exchange.recv_delay || job == first; job += stride) {
    if constexpr (is_whole_word<Value>) {
      if (job < jobs) send_and_copy(job_of(job));
    } else {
      if (job < jobs) send_or_copy(job_of(job));
    }
    if (job == first) {
      packets.begin();
      packets.send_tokens(others & ~exchange.to);
      packets.advance();
      if (packets.was_stopped()) return;
    }
    if (job - exchange.recv_delay < jobs && !receive(job_of(job - exchange.recv_delay))) break;
  }
  packets.wait_for_tokens(others & ~exchange.from);
  packets.finish();
}

// Whether the kernel for whole words runs the call. It takes jobs row by row, which is faster here but not everywhere
// (docs/design/gpu_collectives.md). The other rank, whose pieces may not be aligned, may run another kernel: between
// two ranks, both send and receive the rows in their order, so neither waits for a row that comes after one it has yet
// to send.
bool is_pair_gather(const channel::Peers& peers, const Exchange& exchange) {
  return peers.ranks == 2 && exchange.to == exchange.from && exchange.send_stride == 0 && has_whole_words(exchange);
}

// Calls body(kernel) with the kernel for this form of packets and size of a value, or for whole words.
template <typename Body>
cudaError_t with_kernel_of(PacketForm form, bool whole_words, size_t value_bytes, Body body) {
  return channel::with_packet(form, [&]<typename Packet>() {
    if (whole_words) return body(move_kernel<Packet, WholeWord>);
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
  for (const PacketForm form : {PacketForm::words, PacketForm::short_packets, PacketForm::lines}) {
    if (const cudaError_t error = with_kernel_of(form, true, 0, load)) return error;
    for (const size_t value_bytes : {1, 2, 4, 8})
      if (const cudaError_t error = with_kernel_of(form, false, value_bytes, load)) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_packet_move(const channel::Peers& peers, const Exchange& exchange, size_t value_bytes,
                               const PacketShape& shape, cudaStream_t stream) {
  return with_kernel_of(shape.form, is_pair_gather(peers, exchange), value_bytes, [&](auto kernel) {
    return device::launch_early(kernel, shape.ctas, shape.warps, 0, stream, peers, exchange);
  });
}

}  // namespace narrowcast::executor::cuda
