// The reduction of one unit over the ranks, in rank order, in registers; the same bits as collective/host/reduction.cc.
#pragma once

#include <cstring>
#include <type_traits>

#include "channel/cuda/packets.cuh"
#include "codec/cuda/reduce_value.cuh"
#include "collective/cuda/average.cuh"

namespace narrowcast::collective::cuda {

using channel::Unit;
using codec::cuda::Number;

template <ncast_dtype Dtype>
inline constexpr bool is_float8 = Dtype == NCAST_FLOAT8_E4M3 || Dtype == NCAST_FLOAT8_E5M2;
template <ncast_dtype Dtype>
inline constexpr __nv_fp8_interpretation_t float8_kind = Dtype == NCAST_FLOAT8_E4M3 ? __NV_E4M3 : __NV_E5M2;

// The values of a word.
template <ncast_dtype Dtype>
inline constexpr int word_values = 8 / sizeof(typename Number<Dtype>::Value);

template <ncast_dtype Dtype>
__device__ __forceinline__ void widen(uint64_t word, typename Number<Dtype>::Accumulator (&to)[word_values<Dtype>]) {
  using Value = typename Number<Dtype>::Value;
  if constexpr (is_float8<Dtype>) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const auto pair = static_cast<__nv_fp8x2_storage_t>(word >> (8 * i));
      const float2 values = __half22float2(__nv_cvt_fp8x2_to_halfraw2(pair, float8_kind<Dtype>));
      to[i] = values.x;
      to[i + 1] = values.y;
    }
  } else {
    Value values[word_values<Dtype>];
    memcpy(values, &word, sizeof word);
#pragma unroll
    for (int i = 0; i < word_values<Dtype>; ++i) to[i] = static_cast<typename Number<Dtype>::Accumulator>(values[i]);
  }
}

// The conversion makes what is too large the largest value; make it what it should be. Half of the step to the number
// that would come next is where rounding, ties to even, leaves the range.
template <ncast_dtype Dtype>
__device__ __forceinline__ uint32_t narrowed_float8(float a, float b) {
  uint32_t pair = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, float8_kind<Dtype>);
  if constexpr (Dtype == NCAST_FLOAT8_E4M3) {
    if (!(fabsf(a) <= 464.f)) pair |= 0x7f;
    if (!(fabsf(b) <= 464.f)) pair |= 0x7f00;
  } else {
    if (fabsf(a) >= 61440.f) pair = (pair & 0xff80) | 0x7c;
    if (fabsf(b) >= 61440.f) pair = (pair & 0x80ff) | 0x7c00;
  }
  return pair;
}

template <ncast_dtype Dtype>
__device__ __forceinline__ uint64_t narrow(const typename Number<Dtype>::Accumulator (&from)[word_values<Dtype>]) {
  using Value = typename Number<Dtype>::Value;
  uint64_t word = 0;
  if constexpr (is_float8<Dtype>) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) word |= uint64_t{narrowed_float8<Dtype>(from[i], from[i + 1])} << (8 * i);
  } else if constexpr (Dtype == NCAST_BFLOAT16) {
    const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(from[0], from[1]), __floats2bfloat162_rn(from[2], from[3])};
    memcpy(&word, pairs, sizeof word);
  } else if constexpr (Dtype == NCAST_FLOAT16) {
    const __half2 pairs[2] = {__floats2half2_rn(from[0], from[1]), __floats2half2_rn(from[2], from[3])};
    memcpy(&word, pairs, sizeof word);
  } else {
    static_assert(std::is_same_v<Value, typename Number<Dtype>::Accumulator>);
    memcpy(&word, from, sizeof word);
  }
  return word;
}

template <ncast_dtype Dtype>
using Accumulators = typename Number<Dtype>::Accumulator[channel::unit_words][word_values<Dtype>];

// The unit of a rank: `own`, or one of the others', which are in rank order.
template <int Others>
__device__ __forceinline__ Unit unit_of(int rank, int own_rank, const Unit& own, const Unit (&others)[Others]) {
  Unit unit;
#pragma unroll
  for (int i = 0; i < channel::unit_words; ++i) {
    const uint64_t before = rank < Others ? others[rank].words[i] : 0, after = rank > 0 ? others[rank - 1].words[i] : 0;
    unit.words[i] = rank < own_rank ? before : rank == own_rank ? own.words[i] : after;
  }
  return unit;
}

template <ncast_dtype Dtype, ncast_redop Op, int Others>
__device__ __forceinline__ void accumulate(const channel::Peers& peers, const Unit& own, const Unit (&others)[Others],
                                           Accumulators<Dtype>& sums) {
#pragma unroll
  for (int rank = 1; rank <= Others; ++rank) {
    if (rank >= peers.ranks) continue;
    const Unit unit = unit_of(rank, peers.rank, own, others);
#pragma unroll
    for (int word = 0; word < channel::unit_words; ++word) {
      typename Number<Dtype>::Accumulator values[word_values<Dtype>];
      widen<Dtype>(unit.words[word], values);
#pragma unroll
      for (int i = 0; i < word_values<Dtype>; ++i) sums[word][i] = codec::cuda::reduced(Op, sums[word][i], values[i]);
    }
  }
}

template <ncast_dtype Dtype, int Others>
__device__ __forceinline__ Unit reduced_unit(const channel::Peers& peers, const Unit& own, const Unit (&others)[Others],
                                             ncast_redop op) {
  Accumulators<Dtype> sums;
  const Unit first = unit_of(0, peers.rank, own, others);
#pragma unroll
  for (int word = 0; word < channel::unit_words; ++word) widen<Dtype>(first.words[word], sums[word]);
  switch (op) {
    case NCAST_PROD: accumulate<Dtype, NCAST_PROD>(peers, own, others, sums); break;
    case NCAST_MIN: accumulate<Dtype, NCAST_MIN>(peers, own, others, sums); break;
    case NCAST_MAX: accumulate<Dtype, NCAST_MAX>(peers, own, others, sums); break;
    default: accumulate<Dtype, NCAST_SUM>(peers, own, others, sums); break;
  }
  const Average<typename Number<Dtype>::Accumulator> average(op, peers.ranks);
#pragma unroll
  for (int word = 0; word < channel::unit_words; ++word) {
#pragma unroll
    for (int i = 0; i < word_values<Dtype>; ++i) sums[word][i] = average.of(sums[word][i]);
  }
  Unit result;
#pragma unroll
  for (int word = 0; word < channel::unit_words; ++word) result.words[word] = narrow<Dtype>(sums[word]);
  return result;
}

}  // namespace narrowcast::collective::cuda
