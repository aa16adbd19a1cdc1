// Reduces a unit over the ranks, in rank order and in registers. The result has the same bits as that of
// executor/host/reduction.cc.
#pragma once

#include "channel/packet/packets.cuh"
#include "executor/cuda/average.cuh"
#include "executor/cuda/word_values.cuh"

namespace narrowcast::executor::cuda {

using channel::Unit;

template <typename Packet, ncast_dtype Dtype>
using Accumulators = typename Number<Dtype>::Accumulator[Packet::unit_words][word_values<Dtype>];

// The unit of a rank: `own`, or one of `others`, which are in rank order without this rank.
template <typename Packet, int Others>
__device__ __forceinline__ Unit<Packet> unit_of(int rank, int own_rank, const Unit<Packet>& own,
                                                const Unit<Packet> (&others)[Others]) {
  Unit<Packet> unit;
#pragma unroll
  for (int i = 0; i < Packet::unit_words; ++i) {
    const uint64_t before = rank < Others ? others[rank].words[i] : 0, after = rank > 0 ? others[rank - 1].words[i] : 0;
    unit.words[i] = rank < own_rank ? before : rank == own_rank ? own.words[i] : after;
  }
  return unit;
}

template <ncast_dtype Dtype, ncast_redop Op, typename Packet, int Others>
__device__ __forceinline__ void accumulate(const channel::Peers& peers, const Unit<Packet>& own,
                                           const Unit<Packet> (&others)[Others], Accumulators<Packet, Dtype>& sums) {
#pragma unroll
  for (int rank = 1; rank <= Others; ++rank) {
    if (rank >= peers.ranks) continue;
    const Unit<Packet> unit = unit_of(rank, peers.rank, own, others);
#pragma unroll
    for (int word = 0; word < Packet::unit_words; ++word) {
      typename Number<Dtype>::Accumulator values[word_values<Dtype>];
      widen<Dtype>(unit.words[word], values);
#pragma unroll
      for (int i = 0; i < word_values<Dtype>; ++i) sums[word][i] = codec::cuda::reduced(Op, sums[word][i], values[i]);
    }
  }
}

template <ncast_dtype Dtype, typename Packet>
__device__ __forceinline__ Unit<Packet> narrowed(const Accumulators<Packet, Dtype>& sums) {
  Unit<Packet> result;
#pragma unroll
  for (int word = 0; word < Packet::unit_words; ++word) result.words[word] = narrow<Dtype>(sums[word]);
  return result;
}

// The sum of the units of two ranks. Their order does not matter, because addition is commutative.
template <ncast_dtype Dtype, typename Packet>
__device__ __forceinline__ Unit<Packet> sum_of_two(const Unit<Packet>& a, const Unit<Packet>& b) {
  using Accumulator = typename Number<Dtype>::Accumulator;
  Accumulators<Packet, Dtype> sums;
#pragma unroll
  for (int word = 0; word < Packet::unit_words; ++word) {
    Accumulator values[word_values<Dtype>];
    widen<Dtype>(a.words[word], sums[word]);
    widen<Dtype>(b.words[word], values);
#pragma unroll
    for (int i = 0; i < word_values<Dtype>; ++i)
      sums[word][i] = Average<Accumulator>::canonical(codec::cuda::reduced(NCAST_SUM, sums[word][i], values[i]));
  }
  return narrowed<Dtype, Packet>(sums);
}

template <ncast_dtype Dtype, typename Packet, int Others>
__device__ __forceinline__ Unit<Packet> summed_unit(const channel::Peers& peers, const Unit<Packet>& own,
                                                    const Unit<Packet> (&others)[Others]) {
  if constexpr (Others == 1) return sum_of_two<Dtype>(own, others[0]);
  using Accumulator = typename Number<Dtype>::Accumulator;
  Accumulators<Packet, Dtype> sums;
  const Unit<Packet> first = unit_of(0, peers.rank, own, others);
#pragma unroll
  for (int word = 0; word < Packet::unit_words; ++word) widen<Dtype>(first.words[word], sums[word]);
  accumulate<Dtype, NCAST_SUM>(peers, own, others, sums);
#pragma unroll
  for (int word = 0; word < Packet::unit_words; ++word) {
#pragma unroll
    for (int i = 0; i < word_values<Dtype>; ++i) sums[word][i] = Average<Accumulator>::canonical(sums[word][i]);
  }
  return narrowed<Dtype, Packet>(sums);
}

template <ncast_dtype Dtype, typename Packet, int Others>
__device__ __forceinline__ Unit<Packet> reduced_unit(const channel::Peers& peers, const Unit<Packet>& own,
                                                     const Unit<Packet> (&others)[Others], ncast_redop op) {
  if (op == NCAST_SUM) return summed_unit<Dtype>(peers, own, others);  // shorter code than for the other operators
  Accumulators<Packet, Dtype> sums;
  const Unit<Packet> first = unit_of(0, peers.rank, own, others);
#pragma unroll
  for (int word = 0; word < Packet::unit_words; ++word) widen<Dtype>(first.words[word], sums[word]);
  switch (op) {
    case NCAST_PROD: accumulate<Dtype, NCAST_PROD>(peers, own, others, sums); break;
    case NCAST_MIN: accumulate<Dtype, NCAST_MIN>(peers, own, others, sums); break;
    case NCAST_MAX: accumulate<Dtype, NCAST_MAX>(peers, own, others, sums); break;
    default: accumulate<Dtype, NCAST_SUM>(peers, own, others, sums); break;
  }
  const Average<typename Number<Dtype>::Accumulator> average(op, peers.ranks);
  const auto finish = [&](auto function) {
#pragma unroll
    for (int word = 0; word < Packet::unit_words; ++word) {
#pragma unroll
      for (int i = 0; i < word_values<Dtype>; ++i) sums[word][i] = function(sums[word][i]);
    }
  };
  if (average.divides()) {
    finish([&](auto sum) { return average.divided(sum); });
  } else {
    finish([&](auto sum) { return average.multiplied(sum); });
  }
  return narrowed<Dtype, Packet>(sums);
}

}  // namespace narrowcast::executor::cuda
