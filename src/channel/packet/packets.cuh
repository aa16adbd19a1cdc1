// Messages by packets: data and a flag that arrive together. A packet needs no fence, and a message costs the flight of
// one store. There are two kinds, those of NCCL's protocols LL and LL128 (nccl/src/device/prims_ll.h, prims_ll128.h):
// - Short packets are one store of 16 bytes, of which whoever loads it sees all or nothing.
// - Lines are 128 bytes that a warp stores by one instruction, 16 a lane. NVLink carries such a store as one write, and
//   its last bytes are not seen before the others; the memory model does not promise that, which is why lines are for
//   GPUs with NVLink only. A load may still see an older part of a line beside its flag, so data are loaded after the
//   flag was seen.
//
// Calls are numbered from 1. A packet's flag is the number of the call that sent it, modulo 2^19, and the call's mark
// (channel/peer/call_word.h): packets of a rank that makes another call are never taken. Calls use two buffers by
// turns; the proof that no rank overwrites what another has still to read:
//   1. In every call every rank receives something from every other one: packets, or a token where no data go. A kernel
//      ends only when every thread of every CTA has received what is meant for it; the tokens are for CTA 0.
//   2. When rank p writes into rank r's buffer for call n + 2, p's kernel of call n + 1 has ended (stream order). By 1
//      it received something that r's kernel of call n + 1 sent, so r's kernel of call n had ended, and had read all of
//      call n's packets. Those of call n are the last that lay in this buffer. How many CTAs the calls had does not
//      matter.
//   3. The chain is one of the memory model's: the end of a kernel is a fence of the system's scope, so that "read, end
//      of the kernel, packet" is a release pattern, and "packet seen, end of the kernel, write" the acquiring one.
// A kernel whose wait failed may break 1: the communicator is stopped then, and its results are not used.
#pragma once

#include "channel/packet/packet_area.h"
#include "channel/peer/bounded_wait.cuh"
#include "channel/peer/call_word.h"

namespace narrowcast::channel {

// What a lane moves of a row.
template <typename Packet>
struct Unit {
  uint64_t words[Packet::unit_words];
};

// Which unit of a piece.
template <typename Packet>
struct UnitPlace {
  static constexpr uint32_t outside = 0xffffff00;  // beyond any piece
  uint32_t row, lane;

  // In the piece.
  __device__ __forceinline__ uint32_t word_offset(int word) const {
    return Packet::has_word(word, lane) ? row * Packet::row_bytes + Packet::word_offset(word, lane) : outside;
  }
  // Is there a packet for it, in a piece of so many bytes? Of lines all lanes of a warp have one, or none.
  __device__ __forceinline__ bool is_in(uint32_t piece_bytes) const {
    return row * Packet::row_bytes + (Packet::is_line ? 0 : lane * 8) < piece_bytes;
  }
};

// Ranks as bits.
using RankMask = uint32_t;

// One call, seen by one thread. The whole warp calls what sends and receives lines.
template <typename Packet>
class Packets {
 public:
  using Unit = channel::Unit<Packet>;
  using Place = UnitPlace<Packet>;

  // rows: where in a buffer the rows of this kind begin, in bytes. mark: of the call.
  __device__ Packets(const Peers& peers, uint32_t buffer_bytes, uint32_t rows, uint32_t mark)
      : peers_(peers), buffer_bytes_(buffer_bytes), rows_(rows), mark_(mark) {}

  // Before the first of the other functions; calling it again does nothing. Loads the number of the call and the stop
  // word at once, which takes as long as loading data: issue the first data's loads before, so that all are in flight
  // together. Plain loads, which the CTA's threads share in L1: the last kernel wrote the number, and this one does not
  // until advance(). A stop that comes later is noticed by the waits.
  //
  // There is no branch on the stop word here, because ptxas would move the loads of data behind it, and every call
  // would take the latency of a load longer. Instead the kernel of a stopped communicator sends packets that no rank
  // accepts, and returns after advance().
  __device__ __forceinline__ void begin() {
    if (flag_ != 0) return;
    const auto [calls, stopped] = *reinterpret_cast<const uint2*>(&peers_.ctas[blockIdx.x]);
    sequence_ = calls + 1;
    flag_ = stopped == 0 ? mark_ << number_bits | sequence_ % number_count : stopped_flag | sequence_ % 2;
  }
  // The communicator was stopped before this kernel began. After begin(); the kernel returns when it has advanced.
  __device__ __forceinline__ bool was_stopped() const { return flag_ >> number_bits == 0; }

  // Every thread of the CTA, once: the CTA's next call has another number. Only this
  // CTA reads its number, so a barrier of the CTA orders the store after the loads. The number_count of CTAs that this call
  // does not have are kept up by those that it has, each by one: no CTA waits for another.
  __device__ void advance() const {
    __syncthreads();
    for (uint32_t cta = blockIdx.x + threadIdx.x * gridDim.x; cta < max_packet_ctas; cta += blockDim.x * gridDim.x)
      peers_.ctas[cta].packet_calls = sequence_;
  }

  // The place is one of the buffer's, the same at both ends.
  __device__ __forceinline__ void send(int peer, Place place, const Unit& unit) const {
    char* to = packets(peer, place) + slot(peer, peers_.rank) * slot_bytes;
    const uint64_t (&words)[Packet::unit_words] = unit.words;
    if constexpr (!Packet::is_line) {
      device::store_16_bytes_relaxed(to, {low(words[0]), high(words[0]), low(words[1]), flag_});
      device::store_16_bytes_relaxed(to + store_bytes, {high(words[1]), low(words[2]), high(words[2]), flag_});
    } else {
      const bool flag = Packet::has_flag(place.lane);
      __syncwarp();  // a line is one instruction's
#pragma unroll
      for (int store = 0; store < Packet::stores; ++store) {
        const uint64_t first = words[2 * store], second = words[2 * store + 1];
        device::store_16_bytes_relaxed(to + store * store_bytes,
                                       {low(first), high(first), flag ? 0 : low(second), flag ? flag_ : high(second)});
      }
    }
  }

  // Waits for the unit at `place` of several sources: source_of(i) for those i whose bit is set in `wanted`, which are
  // below it where i is below this rank, and one further on from there. False: the communicator is stopped.
  __device__ int source_of(int i) const { return i + (i >= peers_.rank ? 1 : 0); }
  __device__ uint32_t wanted(RankMask sources) const {
    const uint32_t below = (1u << peers_.rank) - 1;
    return (sources & below) | (sources >> 1 & ~below);
  }
  template <int Sources>
  __device__ __forceinline__ bool receive(uint32_t wanted, Place place, Unit (&units)[Sources]) const {
    return receive_at(packets(peers_.rank, place), 0, wanted, units);
  }
  __device__ __forceinline__ bool receive_from(int source, Place place, Unit& unit) const {
    Unit units[1];
    const uint32_t first = slot(peers_.rank, source);
    const char* from = packets(peers_.rank, place) + first * slot_bytes;
    const bool arrived = receive_at(from, static_cast<int>(first), 1, units);
    unit = units[0];
    return arrived;
  }

  // Every thread may call; thread p of CTA 0 acts for rank p. To ranks that are sent no data, from those that send
  // none.
  __device__ void send_tokens(RankMask to) const {
    if (is_token_thread(to)) device::store_relaxed(&state(my_peer())->tokens[buffer_index()][peers_.rank], flag_);
  }
  __device__ void wait_for_tokens(RankMask from) const {
    if (!is_token_thread(from)) return;
    const uint32_t* token = &state(peers_.rank)->tokens[buffer_index()][my_peer()];
    int missing_peer = my_peer();
    wait_until(
        peers_, missing_peer, [&] { return device::load_relaxed(token) == flag_; }, wait_timed_out,
        [&] { return finds_mismatch(missing_peer); });
  }

  // Every thread of every CTA calls it last. The number_count in flags repeat after 2^19 calls. Before that, the last call
  // of each turn clears its buffer, so that no old flag is left; the CTA that ends last does so, when all of this
  // call's packets have been read. None of the next call of this turn can arrive before the kernel has ended: see 2
  // above.
  __device__ void finish() const {
    if (flag_ % number_count < number_count - 2) return;
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      is_last = atomicAdd(&state(peers_.rank)->ended_ctas, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    for (uint32_t at = threadIdx.x * 16; at < buffer_bytes_; at += blockDim.x * 16)
      *reinterpret_cast<uint4*>(buffer(peers_.rank) + at) = uint4{};
    if (threadIdx.x < max_gpu_ranks) state(peers_.rank)->tokens[buffer_index()][threadIdx.x] = 0;
    if (threadIdx.x == 0) state(peers_.rank)->ended_ctas = 0;
  }

 private:
  static constexpr uint32_t number_bits = 32 - call_mark_bits, number_count = 1u << number_bits;
  static constexpr uint32_t stopped_flag =
      2;  // no call's flag, as it has no mark, and not 0, which is what cleared memory holds
  static constexpr uint32_t slot_bytes = Packet::stores * store_bytes;  // of a row, for a source

  __device__ static uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
  __device__ static uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  __device__ static uint64_t word(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }

  __device__ PacketState* state(int rank) const { return reinterpret_cast<PacketState*>(peers_.scratch[rank]); }
  __device__ uint32_t buffer_index() const { return flag_ % 2; }
  __device__ char* buffer(int rank) const {
    return peers_.scratch[rank] + sizeof(PacketState) + buffer_index() * buffer_bytes_;
  }
  // Where `source` writes in a row of the memory of `rank`, which has no place for itself.
  __device__ static uint32_t slot(int rank, int source) {
    return static_cast<uint32_t>(source - (source > rank ? 1 : 0));
  }
  // Of the first slot.
  __device__ char* packets(int rank, Place place) const {
    return buffer(rank) + rows_ + place.row * static_cast<uint32_t>(peers_.ranks - 1) * slot_bytes + place.lane * 16;
  }

  // Slots lie a constant apart: one address serves all.
  template <int Slots>
  __device__ __forceinline__ bool receive_at(const char* from, int first_slot, uint32_t wanted,
                                             Unit (&units)[Slots]) const {
    if constexpr (Packet::is_line) {
      return receive_lines(from, first_slot, wanted, units);
    } else {
      return receive_short(from, first_slot, wanted, units);
    }
  }

  // The packets of all are asked for at once, and again those that have not come.
  template <int Slots>
  __device__ __forceinline__ bool receive_short(const char* from, int first_slot, uint32_t wanted,
                                                Unit (&units)[Slots]) const {
    uint4 first[Slots], second[Slots];
#pragma unroll
    for (int i = 0; i < Slots; ++i)  // what is not wanted has come
      first[i].w = second[i].w = (wanted >> i & 1) != 0 ? ~flag_ : flag_;
    int missing_peer = 0;
    const bool arrived = wait_until(
        peers_, missing_peer,
        [&] {
#pragma unroll
          for (int i = 0; i < Slots; ++i) {
            if (first[i].w != flag_) first[i] = device::load_16_bytes_relaxed(from + i * slot_bytes);
            if (second[i].w != flag_) second[i] = device::load_16_bytes_relaxed(from + i * slot_bytes + store_bytes);
          }
          bool all = true;
#pragma unroll
          for (int i = 0; i < Slots; ++i) {
            const bool here = first[i].w == flag_ && second[i].w == flag_;
            if (!here) missing_peer = source_of(first_slot + i);
            all = all && here;
          }
          return all;
        },
        wait_timed_out, [&] { return finds_mismatch(missing_peer); });
#pragma unroll
    for (int i = 0; i < Slots; ++i) {
      units[i].words[0] = word(first[i].x, first[i].y);
      units[i].words[1] = word(first[i].z, second[i].x);
      units[i].words[2] = word(second[i].y, second[i].z);
    }
    return arrived;
  }

  // The lanes that have flags look at them, and then all load their data. units: 0 where nothing is wanted.
  template <int Slots>
  __device__ __forceinline__ bool receive_lines(const char* from, int first_slot, uint32_t wanted,
                                                Unit (&units)[Slots]) const {
    int missing_peer = 0;
    const auto arrived = [&] {
      uint32_t flags[Slots][Packet::stores];
#pragma unroll
      for (int i = 0; i < Slots; ++i) {
        const char* const line = from + i * slot_bytes;
#pragma unroll
        for (int store = 0; store < Packet::stores; ++store) {
          flags[i][store] = flag_;
          if ((wanted >> i & 1) != 0 && Packet::has_flag(device::lane_id()))
            flags[i][store] = device::load_relaxed(
                reinterpret_cast<const uint32_t*>(line + store * store_bytes + 16 - sizeof(uint32_t)));
        }
      }
      bool all = true;
#pragma unroll
      for (int i = 0; i < Slots; ++i) {
#pragma unroll
        for (int store = 0; store < Packet::stores; ++store) {
          if (flags[i][store] == flag_) continue;
          missing_peer = source_of(first_slot + i);
          all = false;
        }
      }
      return all;
    };
    if (!wait_until_all(peers_, missing_peer, arrived, [&] { return finds_mismatch(missing_peer); })) return false;
#pragma unroll
    for (int i = 0; i < Slots; ++i) {
#pragma unroll
      for (int store = 0; store < Packet::stores; ++store) {
        uint4 half = {};
        if ((wanted >> i & 1) != 0) half = device::load_16_bytes_relaxed(from + i * slot_bytes + store * store_bytes);
        units[i].words[2 * store] = word(half.x, half.y);
        units[i].words[2 * store + 1] = word(half.z, half.w);
      }
    }
    return true;
  }

  // For a thread whose wait takes long. A rank in another call waits as well, since flags differ: both tell the other
  // ranks which call they are in, and look whether one disagrees. True: `peer` does. What is announced is kept in the
  // rank's own place, so that one thread does it.
  __device__ bool finds_mismatch(int& peer) const {
    PacketState* const own = state(peers_.rank);
    // The number's high part, before or after advance().
    uint32_t number = device::load_relaxed(&peers_.ctas[blockIdx.x].packet_calls);
    number += (flag_ - number) % number_count + device::load_relaxed(&own->call_words.block_collectives);
    const CallWord word = CallWord::of(number, mark_);
    const auto announced = [&](int rank) { return state(rank)->call_words.announced[0][number % CallWords::kept]; };
    uint64_t* const calls = announced(peers_.rank);
    const bool announces = device::load_relaxed(&calls[peers_.rank]) != word.word;
    bool found = false;
#pragma unroll 1
    for (int rank = 0; rank < peers_.ranks; ++rank) {
      if (rank == peers_.rank) continue;
      if (announces) device::store_relaxed(&announced(rank)[peers_.rank], word.word);
      if (!CallWord{device::load_relaxed(&calls[rank])}.disagrees_with(word)) continue;
      peer = rank;
      found = true;
    }
    if (announces) device::store_relaxed(&calls[peers_.rank], word.word);
    return found;
  }

  __device__ static int my_peer() { return static_cast<int>(threadIdx.x); }
  __device__ static bool is_token_thread(RankMask ranks) {
    return blockIdx.x == 0 && threadIdx.x < max_gpu_ranks && (ranks >> threadIdx.x & 1) != 0;
  }

  const Peers& peers_;  // the scratch pointers lead to the packets' area
  uint32_t buffer_bytes_, rows_, mark_;
  uint32_t sequence_ = 0;  // of the call; used until advance()
  uint32_t flag_ = 0;      // of its packets; 0: begin() has not been called
};

}  // namespace narrowcast::channel
