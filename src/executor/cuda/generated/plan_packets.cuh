// A thread of a generated kernel that works by packets. All steps of a plan treat every value of a chunk alike, so a
// thread executes a whole program for its unit of every chunk, keeps the values in registers, and needs nothing from
// other
// threads. Every message has its own place in the buffers of channel/packet/packets.cuh, so that senders never wait.
#pragma once

#include <type_traits>

#include "channel/packet/packets.cuh"
#include "device/ptx/stream_order.cuh"
#include "executor/cuda/average.cuh"
#include "executor/cuda/generated/plan_call.h"
#include "executor/cuda/packets/unit_memory.cuh"
#include "executor/cuda/word_values.cuh"

namespace narrowcast::executor::cuda::generated {

// aligned: chunks begin at multiples of 8 bytes and consist of whole words. With lines the whole warp calls every
// function: either all its lanes have a unit or none.
template <typename Packet, ncast_dtype Dtype, ncast_redop Op, bool aligned>
class PlanPackets {
  using Place = channel::UnitPlace<Packet>;
  using Accumulator = typename Number<Dtype>::Accumulator;
  static constexpr int values = word_values<Dtype>;
  static constexpr ncast_redop combination = Op == NCAST_AVG ? NCAST_SUM : Op;
  using Bits = std::conditional_t<
      values == 8, uint8_t,
      std::conditional_t<values == 4, uint16_t, std::conditional_t<values == 2, uint32_t, uint64_t>>>;

 public:
  using Unit = channel::Unit<Packet>;

  __device__ explicit PlanPackets(const PlanPacketCall& call)
      : call_(call), packets_(call.peers, call.buffer_bytes, call.rows_begin, call.mark) {
    const uint32_t job = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    strand_ = job / call.rows;
    place_ = {job - strand_ * call.rows, threadIdx.x % 32};
  }

  // The part of the rank's program that this warp executes, of `strands`.
  __device__ StrandRef strand(uint32_t strands) const {
    return strand_ < strands ? StrandRef{call_.table[strand_]} : StrandRef::of(StrandRef::none, 0);
  }
  __device__ const uint32_t* numbers(StrandRef strand) const { return call_.table + strand.first(); }
  // Whether this thread has a unit.
  __device__ bool has_unit() const { return place_.is_in(call_.chunk_bytes); }

  template <uint32_t buffer>
  __device__ __forceinline__ Unit load(uint32_t piece, uint32_t chunk) const {
    const char* const from = buffer == ChunkRef::input ? call_.input : call_.output;
    return load_from(from + offset(piece, chunk), bytes(chunk));
  }
  __device__ __forceinline__ void store(uint32_t piece, uint32_t chunk, const Unit& unit) const {
    char* const to = call_.output + offset(piece, chunk);
    if constexpr (aligned) {
      store_words(to, place_, bytes(chunk), unit);
    } else {
      store_unit<Bits>(to, place_, bytes(chunk), call_.is_aligned != 0, unit);
    }
  }

  // Begins to send; the loads of what is sent come first.
  __device__ __forceinline__ void begin() { packets_.begin(); }
  // message: its number among those between the two ranks.
  __device__ __forceinline__ void send(int peer, uint32_t message, const Unit& unit) const {
    packets_.send(peer, place_of(message), unit);
  }
  // Every thread of the CTA calls this once, between its first sends and its first receive. Returns false if the
  // communicator was stopped before the kernel began.
  __device__ __forceinline__ bool advance() {
    packets_.begin();
    packets_.send_tokens(call_.tokens_to);
    packets_.advance();
    return !packets_.was_stopped();
  }
  // Receives a message of the same number from several sources; that of source i into units[i]. Sources are the other
  // ranks, numbered without a gap; `sources` has a bit for each.
  template <int Sources>
  __device__ __forceinline__ bool receive(uint32_t sources, uint32_t message, Unit (&units)[Sources]) const {
    return packets_.receive(sources, place_of(message), units);
  }
  __device__ __forceinline__ bool receive_one(uint32_t source, uint32_t message, Unit& unit) const {
    return packets_.receive_from(packets_.source_of(static_cast<int>(source)), place_of(message), unit);
  }
  // Every thread of the kernel calls it last.
  __device__ void finish() const {
    if (packets_.was_stopped()) return;
    packets_.wait_for_tokens(call_.tokens_from);
    packets_.finish();
  }

  // Combines units in their order and rounds once. finishes: the result has the values of all ranks.
  template <bool finishes, typename... Units>
  __device__ __forceinline__ Unit reduce(const Unit& first, const Units&... others) const {
    Accumulator sums[Packet::unit_words][values];
#pragma unroll
    for (int word = 0; word < Packet::unit_words; ++word) widen<Dtype>(first.words[word], sums[word]);
    (accumulate(sums, others), ...);
    const Average<Accumulator> average(finishes ? Op : NCAST_SUM, call_.peers.ranks);
    Unit result;
#pragma unroll
    for (int word = 0; word < Packet::unit_words; ++word) {
#pragma unroll
      for (int i = 0; i < values; ++i)
        sums[word][i] = average.divides() ? average.divided(sums[word][i]) : average.multiplied(sums[word][i]);
      result.words[word] = narrow<Dtype>(sums[word]);
    }
    return result;
  }

 private:
  __device__ __forceinline__ static void accumulate(Accumulator (&sums)[Packet::unit_words][values], const Unit& unit) {
#pragma unroll
    for (int word = 0; word < Packet::unit_words; ++word) {
      Accumulator terms[values];
      widen<Dtype>(unit.words[word], terms);
#pragma unroll
      for (int i = 0; i < values; ++i) sums[word][i] = codec::cuda::reduced(combination, sums[word][i], terms[i]);
    }
  }
  __device__ __forceinline__ uint32_t offset(uint32_t piece, uint32_t chunk) const {
    return piece * call_.piece_bytes + chunk * call_.chunk_bytes;
  }
  __device__ __forceinline__ uint32_t bytes(uint32_t chunk) const {
    const uint32_t begin = chunk * call_.chunk_bytes;
    return begin < call_.piece_bytes ? min(call_.piece_bytes - begin, call_.chunk_bytes) : 0;
  }
  __device__ __forceinline__ Unit load_from(const char* from, uint32_t bytes) const {
    if constexpr (aligned) {
      return load_words(from, place_, bytes);
    } else {
      return load_unit<Bits>(from, place_, bytes, call_.is_aligned != 0);
    }
  }
  __device__ __forceinline__ Place place_of(uint32_t message) const {
    return {message * call_.rows + place_.row, place_.lane};
  }

  const PlanPacketCall& call_;
  channel::Packets<Packet> packets_;
  uint32_t strand_;
  Place place_;
};

}  // namespace narrowcast::executor::cuda::generated
