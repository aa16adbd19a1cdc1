// Operations by packets that reduce. A thread sends its units of every piece, reduces its units of this rank's piece,
// and, if results are gathered, receives the results of the other ranks.
#include "executor/cuda/kernels.h"
#include "executor/cuda/packets/exchange.cuh"
#include "executor/cuda/packets/reduce_units.cuh"
#include "executor/cuda/packets/unit_memory.cuh"

namespace narrowcast::executor::cuda {
namespace {

// The integer type with the size of a value, for loads and stores of unaligned words.
template <ncast_dtype Dtype>
using Bits = std::conditional_t<word_values<Dtype> == 8, uint8_t,
                                std::conditional_t<word_values<Dtype> == 4, uint16_t,
                                                   std::conditional_t<word_values<Dtype> == 2, uint32_t, uint64_t>>>;

template <typename Value, int Others, typename Packet>
__device__ __forceinline__ void send_pieces(PacketsOf<Packet, Others>& packets, const channel::Peers& peers,
                                            const Exchange& exchange, UnitPlace<Packet> place) {
  using Unit = Unit<Packet>;
  if (exchange.send_stride == 0) {
    const Unit unit = load_unit<Value>(exchange.send, place, exchange.piece_bytes, exchange.send_aligned);
    packets.begin();
#pragma unroll
    for (int i = 0; i < Others; ++i) {
      const int rank = rank_after(peers, i + 1);
      if (has_rank_after<Others>(peers, i + 1) && (exchange.to >> rank & 1) != 0) packets.send(rank, place, unit);
    }
  } else if (is_whole_word<Value> || exchange.send_aligned) {
    Unit units[Others];  // the compiler cannot move loads above stores, so all loads come first
#pragma unroll
    for (int i = 0; i < Others; ++i) {
      const int rank = rank_after(peers, i + 1);
      if (has_rank_after<Others>(peers, i + 1))
        units[i] = load_words(exchange.send_piece(rank), place, exchange.bytes_of(rank, peers.ranks));
    }
    packets.begin();
    const int last = peers.ranks - 1;
    // The last piece ends within a word and is sent separately.
    const bool is_cut = !is_whole_word<Value> && exchange.last_bytes % 8 != 0;
#pragma unroll
    for (int i = 0; i < Others; ++i) {
      const int rank = rank_after(peers, i + 1);
      if (has_rank_after<Others>(peers, i + 1) && place.is_in(exchange.bytes_of(rank, peers.ranks)) &&
          !(is_cut && rank == last))
        packets.send(rank, place, units[i]);
    }
    if (is_cut && peers.rank != last && place.is_in(exchange.last_bytes))
      packets.send(last, place, load_unit<Value>(exchange.send_piece(last), place, exchange.last_bytes, true));
  } else {
#pragma unroll 1
    for (int i = 0; i + 1 < peers.ranks; ++i) {
      const int rank = rank_after(peers, i + 1);
      const uint32_t bytes = exchange.bytes_of(rank, peers.ranks);
      if (!place.is_in(bytes)) continue;
      const Unit unit = load_unit<Value>(exchange.send_piece(rank), place, bytes, exchange.send_aligned);
      packets.begin();
      packets.send(rank, place, unit);
    }
  }
}

template <typename Value, int Others, typename Packet>
__device__ __forceinline__ void store_results(const PacketsOf<Packet, Others>& packets, const channel::Peers& peers,
                                              const Exchange& exchange, UnitPlace<Packet> place,
                                              const Unit<Packet> (&units)[Others]) {
#pragma unroll
  for (int i = 0; i < Others; ++i) {
    const int rank = packets.source_of(i);
    const uint32_t bytes = rank < peers.ranks ? exchange.bytes_of(rank, peers.ranks) : 0;
    if (place.is_in(bytes)) store_unit<Value>(exchange.recv_piece(rank), place, bytes, exchange.recv_aligned, units[i]);
  }
}

// In-place calls are allowed. In one shot and in reduce_scatter a thread writes only its own units of this rank's
// piece, which no other thread reads. In two shots the result for a piece arrives only after its owner has received
// this rank's data of that piece, so they have been read.
//
// A warp sends a row, reduces the row of the previous turn, and receives the results of the turn before that. There is
// no deadlock: a warp waits only for rows earlier than the last one it sent.
template <typename Packet, ncast_dtype Dtype, int Others, bool sums_words>
__global__ void __launch_bounds__(most_packet_warps(true) * 32)
    reduce_kernel(const __grid_constant__ channel::Peers peers, const __grid_constant__ Exchange exchange,
                  const ncast_redop op) {
  using Value = std::conditional_t<sums_words, WholeWord, Bits<Dtype>>;
  using Place = UnitPlace<Packet>;
  PacketsOf<Packet, Others> packets(peers, exchange.buffer_bytes, exchange.buffer_begin, exchange.mark);
  const channel::RankMask others = ((1u << peers.ranks) - 1) & ~(1u << peers.rank);
  const uint32_t own_bytes = exchange.bytes_of(peers.rank, peers.ranks);
  const uint32_t warps = blockDim.x / 32, lane = threadIdx.x % 32;
  const uint32_t first_row = blockIdx.x * warps + threadIdx.x / 32, stride = gridDim.x * warps;
  const uint32_t rounds = exchange.from == 0 ? 0 : exchange.gathers ? 2 : 1;

  device::wait_for_stream();
#pragma unroll 1
  for (uint32_t turn_row = first_row; turn_row < exchange.rows + rounds * exchange.recv_delay || turn_row == first_row;
       turn_row += stride) {
    if (const Place place{turn_row, lane};
        turn_row < exchange.rows && exchange.to != 0 && place.is_in(exchange.piece_bytes))
      send_pieces<Value, Others>(packets, peers, exchange, place);
    if (turn_row == first_row) {
      packets.begin();
      packets.send_tokens(others & ~exchange.to);
      packets.advance();
      if (packets.was_stopped()) return;
    }
    // Pieces and results share the receiving code, which keeps the kernel short. Between two ranks it is short anyway.
    constexpr bool is_pair = Others == 1;
#pragma unroll is_pair ? 2 : 1
    for (uint32_t round = 0; round < (is_pair ? 2 : rounds); ++round) {
      if (is_pair && round == rounds) break;
      const uint32_t row = turn_row - (round + 1) * exchange.recv_delay;
      const bool is_result = round == 1;
      const Place place{row, lane}, result_place{exchange.buffer_rows / 2 + row, lane};
      channel::RankMask from = exchange.from;
      if (row >= exchange.rows || !place.is_in(is_result ? exchange.piece_bytes : own_bytes)) continue;
      // The last rank's piece may be shorter.
      if (is_result && !place.is_in(exchange.last_bytes)) from &= ~(1u << (peers.ranks - 1));
      if (is_pair && from == 0) continue;
      Unit<Packet> own;
      if (!is_result) own = load_unit<Value>(exchange.send_piece(peers.rank), place, own_bytes, exchange.send_aligned);
      Unit<Packet> units[Others];
      // Leaving the loops by a flag instead would spill many more registers.
      if (!packets.receive(is_pair ? 1 : packets.wanted(from), is_result ? result_place : place, units)) return;
      if (is_result) {
        store_results<Value>(packets, peers, exchange, place, units);
      } else {
        const Unit<Packet> result = reduced_unit<Dtype>(peers, own, units, sums_words ? NCAST_SUM : op);
        if (exchange.gathers) send_to_others<Others>(packets, peers, result_place, result);
        store_unit<Value>(exchange.recv_piece(peers.rank), place, own_bytes, exchange.recv_aligned, result);
      }
    }
  }
  packets.wait_for_tokens(others & ~exchange.from);
  packets.finish();
}

// Calls body(kernel) with the kernel for this form of packets, type and number of ranks. Kernels for few ranks are
// shorter and use fewer registers, and those for sums of whole words, if the type has_short_sum(), are less than half
// as long: a CTA has few warps, so the time of a turn depends on the instructions in it.
template <typename Body>
cudaError_t with_kernel_of(PacketForm form, ncast_dtype dtype, int ranks, bool sums_words, Body body) {
  constexpr int most = channel::max_gpu_ranks - 1;
  return channel::with_packet(form, [&]<typename Packet>() {
    return codec::cuda::dispatch_number(dtype, [&]<ncast_dtype Dtype>() {
      if constexpr (has_short_sum(Dtype) && !Packet::is_word) {
        if (sums_words && ranks == 2) return body(reduce_kernel<Packet, Dtype, 1, true>);
        if (sums_words)
          return ranks <= 4 ? body(reduce_kernel<Packet, Dtype, 3, true>)
                            : body(reduce_kernel<Packet, Dtype, most, true>);
      }
      return ranks <= 4 ? body(reduce_kernel<Packet, Dtype, 3, false>)
                        : body(reduce_kernel<Packet, Dtype, most, false>);
    });
  });
}

}  // namespace

cudaError_t load_packet_reductions() {
  const auto load = [](auto kernel) { return load_kernel(kernel); };
  for (int number = 0; ncast_dtype_bytes(static_cast<ncast_dtype>(number)) != 0; ++number) {
    for (const PacketForm form : {PacketForm::words, PacketForm::short_packets, PacketForm::lines})
      for (const int ranks : {2, 4, channel::max_gpu_ranks})
        for (const bool sums_words : {false, true})
          if (const cudaError_t error = with_kernel_of(form, static_cast<ncast_dtype>(number), ranks, sums_words, load))
            return error;
  }
  return cudaSuccess;
}

cudaError_t launch_packet_reduction(const channel::Peers& peers, const Exchange& exchange, ncast_dtype dtype,
                                    ncast_redop op, const PacketShape& shape, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    return device::launch_early(kernel, shape.ctas, shape.warps, 0, stream, peers, exchange, op);
  };
  return with_kernel_of(shape.form, dtype, peers.ranks, op == NCAST_SUM && has_whole_words(exchange), launch);
}

}  // namespace narrowcast::executor::cuda
