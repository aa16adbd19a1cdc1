// Short messages by packets: aligned whole words, and at most one row for a warp. The instructions between load and
// store determine the time of such a call, so these kernels have few. The features of the general kernels would cost
// 10% or more even when unused (docs/design/gpu_collectives.md). The packets are the same, so the ranks of one call may
// use different kernels.
#include "executor/cuda/kernels.h"
#include "executor/cuda/packets/exchange.cuh"
#include "executor/cuda/packets/reduce_units.cuh"
#include "executor/cuda/packets/unit_memory.cuh"

namespace narrowcast::executor::cuda {
namespace {

// How the ranks share the reduction.
enum class Sharing {
  whole,     // every rank reduces all data
  pieces,    // every rank reduces one piece and keeps it
  gathered,  // every rank reduces one piece and sends the result to the others
};

__device__ __forceinline__ uint32_t warp_row() { return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }

// Sends the units of the other ranks and returns this rank's own unit.
template <Sharing sharing, int Others, typename Packet>
__device__ __forceinline__ Unit<Packet> send_units(channel::Packets<Packet>& packets, const channel::Peers& peers,
                                                   const Exchange& exchange, UnitPlace<Packet> place) {
  const auto load = [&](int rank) {
    return load_words(exchange.send_piece(rank), place, exchange.bytes_of(rank, peers.ranks));
  };
  const Unit<Packet> own = load(peers.rank);
  if constexpr (sharing == Sharing::whole) {
    packets.begin();
    send_to_others<Others>(packets, peers, place, own);
  } else {
    Unit<Packet> units[Others];  // the compiler cannot move loads above stores, so all loads come first
#pragma unroll
    for (int i = 0; i < Others; ++i)
      if (i + 1 < peers.ranks) units[i] = load(rank_after(peers, i + 1));
    packets.begin();
#pragma unroll
    for (int i = 0; i < Others; ++i) {
      const int rank = rank_after(peers, i + 1);
      if (i + 1 < peers.ranks && place.is_in(exchange.bytes_of(rank, peers.ranks))) packets.send(rank, place, units[i]);
    }
  }
  return own;
}

// Receives and stores the sums of the other ranks' pieces.
template <int Others, typename Packet>
__device__ __forceinline__ void receive_sums(const channel::Packets<Packet>& packets, const channel::Peers& peers,
                                             const Exchange& exchange, UnitPlace<Packet> place,
                                             UnitPlace<Packet> sum_place) {
  channel::RankMask from = exchange.from;
  // The last rank's piece may be shorter.
  if (!place.is_in(exchange.last_bytes)) from &= ~(1u << (peers.ranks - 1));
  Unit<Packet> sums[Others];
  if (!packets.receive(packets.wanted(from), sum_place, sums)) return;
#pragma unroll
  for (int i = 0; i < Others; ++i) {
    const int rank = packets.source_of(i);
    if (rank < peers.ranks)
      store_words(exchange.recv_piece(rank), place, exchange.bytes_of(rank, peers.ranks), sums[i]);
  }
}

// reduce_kernel for one row and all ranks.
template <typename Packet, ncast_dtype Dtype, int Others, Sharing sharing>
__global__ void __launch_bounds__(most_packet_warps(true) * 32)
    sum_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange) {
  channel::Packets<Packet> packets(peers, exchange.buffer_bytes, exchange.buffer_begin, exchange.mark);
  const UnitPlace<Packet> place{warp_row(), threadIdx.x % 32};
  const UnitPlace<Packet> sum_place{exchange.buffer_rows / 2 + place.row, place.lane};
  const uint32_t own_bytes = exchange.bytes_of(peers.rank, peers.ranks);
  const bool has_any = place.is_in(exchange.piece_bytes);
  bool goes_on = true;
  device::wait_for_stream();
  Unit<Packet> own;
  if (has_any) own = send_units<sharing, Others>(packets, peers, exchange, place);
  packets.begin();
  packets.advance();
  if (packets.was_stopped()) return;
  if (place.is_in(own_bytes)) {
    Unit<Packet> units[Others];
    goes_on = packets.receive(packets.wanted(exchange.from), place, units);
    if (goes_on) {
      const Unit<Packet> sum = summed_unit<Dtype>(peers, own, units);
      if constexpr (sharing == Sharing::gathered) send_to_others<Others>(packets, peers, sum_place, sum);
      store_words(exchange.recv_piece(peers.rank), place, own_bytes, sum);
    }
  }
  if constexpr (sharing == Sharing::gathered) {
    if (has_any && goes_on) receive_sums<Others>(packets, peers, exchange, place, sum_place);
  }
  packets.finish();
}

// sum_kernel for two ranks. Without loops over ranks it has half as many instructions.
template <typename Packet, ncast_dtype Dtype, Sharing sharing>
__global__ void __launch_bounds__(most_packet_warps(true) * 32, 1)
    pair_sum_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange) {
  channel::Packets<Packet, 2> packets(peers, exchange.buffer_bytes, exchange.buffer_begin, exchange.mark);
  const UnitPlace<Packet> place{warp_row(), threadIdx.x % 32};
  const UnitPlace<Packet> sum_place{exchange.buffer_rows / 2 + place.row, place.lane};
  const int other = 1 - peers.rank;
  // The second piece may be shorter if results are gathered.
  constexpr bool gathers = sharing == Sharing::gathered;
  const uint32_t bytes = gathers ? exchange.bytes_of(peers.rank, 2) : exchange.piece_bytes;
  const uint32_t other_bytes = gathers ? exchange.bytes_of(other, 2) : bytes;
  const bool has_own = place.is_in(bytes), has_other = gathers ? place.is_in(other_bytes) : has_own;
  device::wait_for_stream();
  Unit<Packet> own, unit;
  if (has_own) own = load_words(exchange.send_piece(sharing == Sharing::whole ? 0 : peers.rank), place, bytes);
  if (has_other) {
    unit = sharing == Sharing::whole ? own : load_words(exchange.send_piece(other), place, other_bytes);
    packets.begin();
    packets.send(other, place, unit);
  }
  packets.begin();
  packets.advance();
  if (packets.was_stopped()) return;
  bool goes_on = true;
  if (has_own) {
    goes_on = packets.receive_from(other, place, unit);
    if (goes_on) {
      const Unit<Packet> sum = sum_of_two<Dtype>(own, unit);
      if constexpr (gathers) packets.send(other, sum_place, sum);
      store_words(exchange.recv_piece(gathers ? peers.rank : 0), place, bytes, sum);
    }
  }
  if constexpr (gathers) {
    if (has_other && goes_on && packets.receive_from(other, sum_place, unit))
      store_words(exchange.recv_piece(other), place, other_bytes, unit);
  }
  packets.finish();
}

// move_kernel for one job.
template <typename Packet>
__global__ void __launch_bounds__(most_packet_warps(false) * 32)
    short_move_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange) {
  channel::Packets<Packet> packets(peers, exchange.buffer_bytes, exchange.buffer_begin, exchange.mark);
  const channel::RankMask others = ((1u << peers.ranks) - 1) & ~(1u << peers.rank);
  const uint32_t bytes = exchange.piece_bytes, number = warp_row();
  const Job<Packet> job(peers, exchange.rows, number);
  const bool has_any = number < exchange.rows * static_cast<uint32_t>(peers.ranks) && job.place.is_in(bytes);
  const bool is_own = job.to == peers.rank;
  device::wait_for_stream();
  if (has_any && (is_own ? exchange.copies_own : (exchange.to >> job.to & 1) != 0)) {
    const Unit<Packet> unit = load_words(exchange.send_piece(job.to), job.place, bytes);
    packets.begin();
    if (is_own) {
      if (!packets.was_stopped()) store_words(exchange.recv_piece(job.to), job.place, bytes, unit);
    } else {
      packets.send(job.to, job.place, unit);
    }
  }
  packets.begin();
  packets.send_tokens(others & ~exchange.to);
  packets.advance();
  if (packets.was_stopped()) return;
  if (has_any && (exchange.from >> job.from & 1) != 0) {
    Unit<Packet> unit;
    if (packets.receive_from(job.from, job.place, unit))
      store_words(exchange.recv_piece(job.from), job.place, bytes, unit);
  }
  packets.wait_for_tokens(others & ~exchange.from);
  packets.finish();
}

// Calls body.operator()<Packet>(). Words have no kernels here: they go through host memory, which takes so long that
// fewer instructions would not be noticed.
template <typename Body>
cudaError_t with_packet_of_gpus(PacketForm form, Body body) {
  return form == PacketForm::lines ? body.template operator()<channel::LinePacket>()
                                   : body.template operator()<channel::ShortPacket>();
}

// Calls body(kernel) with the kernel for this form of packets, type, number of ranks and sharing. Returns
// cudaErrorInvalidValue if the type has no kernel.
template <typename Body>
cudaError_t with_sum_kernel(PacketForm form, ncast_dtype dtype, int ranks, Sharing sharing, Body body) {
  const auto with_ranks = [&]<typename Packet, ncast_dtype Dtype, int Others>() {
    switch (sharing) {
      case Sharing::whole: return body(sum_kernel<Packet, Dtype, Others, Sharing::whole>);
      case Sharing::pieces: return body(sum_kernel<Packet, Dtype, Others, Sharing::pieces>);
      case Sharing::gathered: return body(sum_kernel<Packet, Dtype, Others, Sharing::gathered>);
    }
    return cudaErrorInvalidValue;
  };
  const auto with_dtype = [&]<typename Packet, ncast_dtype Dtype>() {
    if (ranks == 2) {
      switch (sharing) {
        case Sharing::whole: return body(pair_sum_kernel<Packet, Dtype, Sharing::whole>);
        case Sharing::pieces: return body(pair_sum_kernel<Packet, Dtype, Sharing::pieces>);
        case Sharing::gathered: return body(pair_sum_kernel<Packet, Dtype, Sharing::gathered>);
      }
    }
    return ranks <= 4 ? with_ranks.template operator()<Packet, Dtype, 3>()
                      : with_ranks.template operator()<Packet, Dtype, channel::max_gpu_ranks - 1>();
  };
  return with_packet_of_gpus(form, [&]<typename Packet>() {
    switch (dtype) {
      case NCAST_FLOAT16: return with_dtype.template operator()<Packet, NCAST_FLOAT16>();
      case NCAST_BFLOAT16: return with_dtype.template operator()<Packet, NCAST_BFLOAT16>();
      case NCAST_FLOAT32: return with_dtype.template operator()<Packet, NCAST_FLOAT32>();
      default: return cudaErrorInvalidValue;
    }
  });
}

}  // namespace

bool has_whole_words(const Exchange& exchange) {
  return exchange.send_aligned && exchange.recv_aligned && (exchange.piece_bytes | exchange.last_bytes) % 8 == 0;
}
bool is_short(const Exchange& exchange) { return exchange.recv_delay == 0 && has_whole_words(exchange); }

cudaError_t load_short_packets() {
  const auto load = [](auto kernel) { return load_kernel(kernel); };
  for (const PacketForm form : {PacketForm::short_packets, PacketForm::lines}) {
    const cudaError_t error =
        with_packet_of_gpus(form, [&]<typename Packet>() { return load(short_move_kernel<Packet>); });
    if (error != cudaSuccess) return error;
    for (const ncast_dtype dtype : {NCAST_FLOAT16, NCAST_BFLOAT16, NCAST_FLOAT32})
      for (const int ranks : {2, 4, channel::max_gpu_ranks})
        for (const Sharing sharing : {Sharing::whole, Sharing::pieces, Sharing::gathered})
          if (const cudaError_t failed = with_sum_kernel(form, dtype, ranks, sharing, load)) return failed;
  }
  return cudaSuccess;
}

cudaError_t launch_short_move(const channel::Peers& peers, const Exchange& exchange, const PacketShape& shape,
                              cudaStream_t stream) {
  return with_packet_of_gpus(shape.form, [&]<typename Packet>() {
    return device::launch_early(short_move_kernel<Packet>, shape.ctas, shape.warps, 0, stream, peers, exchange);
  });
}

cudaError_t launch_short_sum(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                             const PacketShape& shape, cudaStream_t stream) {
  const Sharing sharing = exchange.gathers            ? Sharing::gathered
                          : exchange.send_stride != 0 ? Sharing::pieces
                                                      : Sharing::whole;
  return with_sum_kernel(shape.form, dtype, peers.ranks, sharing, [&](auto kernel) {
    return device::launch_early(kernel, shape.ctas, shape.warps, 0, stream, peers, exchange);
  });
}

}  // namespace narrowcast::executor::cuda
