// A thread of a generated kernel that works by packets. All steps of a plan treat every value of a chunk alike, so a
// thread executes a whole program for its unit of every chunk, keeps values in registers, and needs nothing from other
// threads. Every message has its own place in the buffers of channel/packet/packets.cuh, so senders never wait.
//
// A job of a warp is one strand of the program for one row of every chunk. If a warp has several jobs, it executes them
// in phases: phase p of a job consists of the steps that p messages lead to, and comes `delay` jobs after phase p - 1,
// so that messages have arrived when they are awaited. This cannot deadlock: the strands of a row are consecutive
// jobs, and the delay is at least their number, so a message is sent in an earlier turn than it is received.
#pragma once

#include <type_traits>

#include "channel/packet/packets.cuh"
#include "device/ptx/stream_order.cuh"
#include "executor/cuda/average.cuh"
#include "executor/cuda/generated/plan_call.h"
#include "executor/cuda/packets/reduce_units.cuh"
#include "executor/cuda/packets/unit_memory.cuh"
#include "executor/cuda/word_values.cuh"

namespace narrowcast::executor::cuda::generated {

// ranks: of the plan. strands: jobs of a row. has_tokens: some ranks exchange no messages. is_straight: a warp has one
// job, and chunks begin at multiples of 8 bytes and consist of whole words. With lines the whole warp calls every
// function: either all its lanes have a unit or none.
template <typename Packet, ncast_dtype Dtype, ncast_redop Op, int ranks, uint32_t strands, bool has_tokens,
          bool is_straight>
class PlanPackets {
  using Place = channel::UnitPlace<Packet>;
  using Accumulator = typename Number<Dtype>::Accumulator;
  static constexpr int values = word_values<Dtype>;
  __device__ static constexpr ncast_redop combination() { return Op == NCAST_AVG ? NCAST_SUM : Op; }
  using Bits = std::conditional_t<
      values == 8, uint8_t,
      std::conditional_t<values == 4, uint16_t, std::conditional_t<values == 2, uint32_t, uint64_t>>>;

 public:
  using Unit = channel::Unit<Packet>;

  __device__ explicit PlanPackets(const PlanPacketCall& call)
      : call_(call), packets_(call.peers, call.buffer_bytes, call.rows_begin, call.mark) {}

  __device__ static uint32_t first_job() { return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }
  // Whether a warp that began with `first` is in time for any phase of `phases` in turn `job`.
  __device__ bool has_turn(uint32_t job, uint32_t phases) const {
    return job < call_.rows * strands + (phases - 1) * call_.delay;
  }
  // Makes a job the current one. Returns whether there is one and this thread has a unit in it.
  __device__ __forceinline__ bool begin_job(uint32_t job) {
    strand_ = job % strands;
    place_ = {job / strands, threadIdx.x % 32};
    // In phases the job may be before the first one: then its row is too large for is_in().
    return (is_straight || place_.row < call_.rows) && place_.is_in(call_.chunk_bytes);
  }
  __device__ __forceinline__ uint32_t strand() const { return strand_; }

  // offset: of the chunk in the buffer. bytes: of the chunk.
  template <uint32_t buffer>
  __device__ __forceinline__ Unit load(uint32_t offset, uint32_t bytes) const {
    const char* const from = (buffer == ChunkRef::input ? call_.input : call_.output) + offset;
    if constexpr (is_straight) {
      return load_words(from, place_, bytes);
    } else {
      return is_whole(bytes) ? load_words(from, place_, bytes)
                             : load_values(from, place_, bytes, call_.is_aligned != 0);
    }
  }
  __device__ __forceinline__ void store(uint32_t offset, uint32_t bytes, const Unit& unit) const {
    char* const to = call_.output + offset;
    if constexpr (is_straight) {
      store_words(to, place_, bytes, unit);
    } else if (is_whole(bytes)) {
      store_words(to, place_, bytes, unit);
    } else {
      store_values(to, place_, bytes, call_.is_aligned != 0, unit);
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
    if constexpr (has_tokens) packets_.send_tokens(call_.tokens_to);
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
    if constexpr (has_tokens) packets_.wait_for_tokens(call_.tokens_from);
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

  // The same for this rank's unit and those of all others.
  template <bool finishes>
  __device__ __forceinline__ Unit reduce_in_rank_order(const Unit& own, const Unit (&others)[ranks - 1]) const {
    return reduced_unit<Dtype>(call_.peers, own, others, finishes ? Op : combination());
  }

 private:
  __device__ __forceinline__ static void accumulate(Accumulator (&sums)[Packet::unit_words][values], const Unit& unit) {
#pragma unroll
    for (int word = 0; word < Packet::unit_words; ++word) {
      Accumulator terms[values];
      widen<Dtype>(unit.words[word], terms);
#pragma unroll
      for (int i = 0; i < values; ++i) sums[word][i] = codec::cuda::reduced(combination(), sums[word][i], terms[i]);
    }
  }
  // Whether a chunk of so many bytes consists of aligned whole words.
  __device__ __forceinline__ bool is_whole(uint32_t bytes) const { return call_.is_aligned != 0 && bytes % 8 == 0; }
  // For all other chunks. The code of every load and store would be much longer if these were inlined.
  __device__ __noinline__ static Unit load_values(const char* from, Place place, uint32_t bytes, bool is_aligned) {
    return load_unit<Bits>(from, place, bytes, is_aligned);
  }
  __device__ __noinline__ static void store_values(char* to, Place place, uint32_t bytes, bool is_aligned, Unit unit) {
    store_unit<Bits>(to, place, bytes, is_aligned, unit);
  }
  __device__ __forceinline__ Place place_of(uint32_t message) const {
    return {message * call_.rows + place_.row, place_.lane};
  }

  const PlanPacketCall& call_;
  channel::Packets<Packet, ranks> packets_;
  uint32_t strand_ = 0;
  Place place_{};
};

}  // namespace narrowcast::executor::cuda::generated
