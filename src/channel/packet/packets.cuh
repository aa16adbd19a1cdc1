// Messages by packets, in which data and a flag arrive together. They need no fence, so the latency of a message is
// that of one store. There are three forms; NCCL's protocols LL and LL128 use the first and the last
// (nccl/src/device/prims_ll.h, prims_ll128.h):
// - Words are 8 bytes, of which 4 are data. They are for host memory, where nothing longer is certain to be written and
//   read at once.
// - Short packets are written by one 16-byte store, which is atomic in GPU memory.
// - Lines are 128 bytes that a warp stores by one instruction, 16 bytes per lane. NVLink transfers such a store as one
//   write, whose last bytes do not become visible before the others. The memory model does not guarantee this, so lines
//   are used on GPUs with NVLink only. A load may still return an older part of a line together with its flag, so the
//   data is loaded after the flag has been seen.
//
// Calls are numbered from 1. A packet's flag consists of the number of the call that sent it, modulo 2^19, and the
// call's mark (channel/peer/call_word.h), so that packets of a rank that makes a different call are never accepted.
// Calls use two buffers alternately. No rank overwrites packets that another has yet to read, because:
//   1. In every call every rank receives something from every other rank: packets, or a token if there is no data. A
//      kernel ends only when every thread of every CTA has received everything meant for it (CTA 0 receives the
//      tokens).
//   2. When rank p writes to rank r's buffer for call n + 2, p's kernel of call n + 1 has ended (stream order). By 1 it
//      has received something that r's kernel of call n + 1 sent. Hence r's kernel of call n had ended, and had read
//      all packets of call n. These were the last packets in this buffer. The number of CTAs of the calls does not
//      matter.
//   3. The memory model guarantees this order: the end of a kernel acts as a fence of system scope, so that "read, end
//      of kernel, packet" is a release pattern and "packet seen, end of kernel, write" is the matching acquire pattern.
// If a wait fails, 1 may not hold, but then the communicator is stopped and its results are not used.
#pragma once

#include "channel/packet/packet_area.h"
#include "channel/peer/bounded_wait.cuh"
#include "channel/peer/call_word.h"

namespace narrowcast::channel {

// A lane's part of a row.
template <typename Packet>
struct Unit {
  uint64_t words[Packet::unit_words];
};

// Position of a unit in a piece.
template <typename Packet>
struct UnitPlace {
  static constexpr uint32_t outside = 0xfffff000;  // larger than any piece
  uint32_t row, lane;

  // Byte offset of the first word of a column in the piece, or `outside` if the lane has no such words.
  __device__ __forceinline__ uint32_t column_offset(int column) const {
    return Packet::has_column(column, lane) ? row * Packet::row_bytes + Packet::column_offset(column, lane) : outside;
  }
  // Bytes between the first word of its column and this one.
  __device__ __forceinline__ static constexpr uint32_t distance(int word) {
    return static_cast<uint32_t>(word / Packet::word_columns) * Packet::word_stride;
  }
  // Byte offset of a word in the piece, or at least `outside`.
  __device__ __forceinline__ uint32_t word_offset(int word) const {
    return column_offset(word % Packet::word_columns) + distance(word);
  }
  // Whether a piece of piece_bytes has a packet for this unit. With lines, either all lanes of a warp have one or none.
  __device__ __forceinline__ bool is_in(uint32_t piece_bytes) const {
    return row * Packet::row_bytes + (Packet::is_line ? 0 : lane * 8) < piece_bytes;
  }
};

// A set of ranks, as bits.
using RankMask = uint32_t;

// The state of one call in one thread. Functions that send or receive lines must be called by the whole warp.
// fixed_ranks: the number of ranks if the kernel knows it, else 0.
template <typename Packet, int fixed_ranks = 0>
class Packets {
 public:
  using Unit = channel::Unit<Packet>;
  using Place = UnitPlace<Packet>;

  // rows: byte offset in a buffer of the rows of this form. mark: the call's mark.
  __device__ Packets(const Peers& peers, uint32_t buffer_bytes, uint32_t rows, uint32_t mark)
      : peers_(peers), buffer_bytes_(buffer_bytes), rows_(rows), mark_(mark) {}

  // Must be called before the other functions; calling it again has no effect. Loads the call's number and the stop
  // word by one load. It takes as long as a load of data, so issue the first loads of data before it: then all are in
  // flight together. It is an ordinary load, which the CTA's threads share in the L1 cache: the previous kernel wrote
  // the number, and this kernel does not change it before advance(). The waits detect a stop that comes later.
  //
  // There is no branch on the stop word here, because ptxas would move the loads of data behind the branch and lengthen
  // every call by the latency of a load. Instead, if the communicator is stopped, the kernel sends packets that no rank
  // accepts, and returns after advance().
  __device__ __forceinline__ void begin() {
    if (flag_ != 0) return;
    const auto [calls, stopped] = *reinterpret_cast<const uint2*>(&peers_.ctas[blockIdx.x]);
    sequence_ = calls + 1;
    flag_ = stopped == 0 ? mark_ << number_bits | sequence_ % number_count : stopped_flag | sequence_ % 2;
  }
  // Whether the communicator was stopped before this kernel began. Valid after begin(). If so, the kernel must return
  // after advance().
  __device__ __forceinline__ bool was_stopped() const { return flag_ >> number_bits == 0; }

  // Advances the CTA's call number. Every thread of the CTA calls it once. Only this CTA reads its number, so a CTA
  // barrier orders the store after the loads. The CTAs of this call also update the numbers of CTAs that it does not
  // have; each number has one writer, so no CTA waits for another.
  __device__ void advance() const {
    __syncthreads();
    for (uint32_t cta = blockIdx.x + threadIdx.x * gridDim.x; cta < max_packet_ctas; cta += blockDim.x * gridDim.x)
      peers_.ctas[cta].packet_calls = sequence_;
  }

  // Sends a unit. The receiver finds it at the same place.
  __device__ __forceinline__ void send(int peer, Place place, const Unit& unit) const {
    char* to = packets(peer, place) + slot(peer, peers_.rank) * slot_bytes;
    const uint64_t (&words)[Packet::unit_words] = unit.words;
    if constexpr (Packet::is_word) {
#pragma unroll
      for (int store = 0; store < Packet::stores; ++store)
        device::store_16_bytes_relaxed(to + store * store_bytes, {low(words[store]), flag_, high(words[store]), flag_});
    } else if constexpr (!Packet::is_line) {
      device::store_16_bytes_relaxed(to, {low(words[0]), high(words[0]), low(words[1]), flag_});
      device::store_16_bytes_relaxed(to + store_bytes, {high(words[1]), low(words[2]), high(words[2]), flag_});
    } else {
      const bool flag = Packet::has_flag(place.lane);
      __syncwarp();  // a line must be stored by one instruction
#pragma unroll
      for (int store = 0; store < Packet::stores; ++store) {
        const uint64_t first = words[2 * store], second = words[2 * store + 1];
        device::store_16_bytes_relaxed(to + store * store_bytes,
                                       {low(first), high(first), flag ? 0 : low(second), flag ? flag_ : high(second)});
      }
    }
  }

  // receive() waits for the units at `place` from several sources: source_of(i) for each bit i of `wanted`. Sources are
  // the other ranks, numbered without a gap; wanted() converts a mask of ranks. Returns false if the communicator is
  // stopped.
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

  // Exchange tokens with ranks to or from which no data is sent. Any thread may call these functions; thread p of CTA 0
  // handles rank p.
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

  // Every thread of every CTA calls it last. The numbers in flags repeat after 2^19 calls. Before that, the last call
  // that uses a buffer clears it, so that no old flag remains. The CTA that ends last does this, when all packets of
  // the call have been read. Packets of the buffer's next call cannot arrive before this kernel has ended: see 2 above.
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
  // Flag of a stopped kernel's packets. No call uses it, since it has no mark; it differs from 0, the flag in cleared
  // memory.
  static constexpr uint32_t stopped_flag = 2;
  static constexpr uint32_t slot_bytes = Packet::stores * store_bytes;  // of one source in a row

  __device__ static uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
  __device__ static uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  __device__ static uint64_t word(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }

  __device__ PacketState* state(int rank) const { return reinterpret_cast<PacketState*>(peers_.scratch[rank]); }
  __device__ uint32_t buffer_index() const { return flag_ % 2; }
  __device__ char* buffer(int rank) const {
    return peers_.scratch[rank] + sizeof(PacketState) + buffer_index() * buffer_bytes_;
  }
  // Index of the slot that `source` writes in the rows of `rank`, which have no slot for `rank` itself.
  __device__ static uint32_t slot(int rank, int source) {
    if constexpr (fixed_ranks == 2) return 0;
    return static_cast<uint32_t>(source - (source > rank ? 1 : 0));
  }
  // Address of the first slot's packets.
  __device__ char* packets(int rank, Place place) const {
    const auto slots = static_cast<uint32_t>((fixed_ranks != 0 ? fixed_ranks : peers_.ranks) - 1);
    return buffer(rank) + rows_ + place.row * slots * slot_bytes + place.lane * 16;
  }

  // Returns the address in a way that the compiler cannot see through. Otherwise it computes the address again between
  // the loads of a poll in some kernels, and each load waits for the one before.
  __device__ static const char* kept(const char* address) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(address));
#endif
    return address;
  }
  // Slots are at a constant distance, so one base address is enough.
  template <int Slots>
  __device__ __forceinline__ bool receive_at(const char* from, int first_slot, uint32_t wanted,
                                             Unit (&units)[Slots]) const {
    if constexpr (Packet::is_line) {
      return receive_lines(from, first_slot, wanted, units);
    } else {
      return receive_each(from, first_slot, wanted, units);
    }
  }

  // Whether a lane's 16 bytes have arrived.
  __device__ bool has_arrived(const uint4& loaded) const {
    return loaded.w == flag_ && (!Packet::is_word || loaded.y == flag_);
  }

  // Loads the packets of all sources together, then repeats the loads of those that have not arrived.
  template <int Slots>
  __device__ __forceinline__ bool receive_each(const char* from, int first_slot, uint32_t wanted,
                                               Unit (&units)[Slots]) const {
    from = kept(from);
    uint4 first[Slots], second[Slots];
#pragma unroll
    for (int i = 0; i < Slots; ++i)  // unwanted packets count as arrived
      first[i].y = second[i].y = first[i].w = second[i].w = (wanted >> i & 1) != 0 ? ~flag_ : flag_;
    int missing_peer = 0;
    const bool arrived = wait_until(
        peers_, missing_peer,
        [&] {
#pragma unroll
          for (int i = 0; i < Slots; ++i) {
            if (!has_arrived(first[i])) first[i] = device::load_16_bytes_relaxed(from + i * slot_bytes);
            if (!has_arrived(second[i])) second[i] = device::load_16_bytes_relaxed(from + i * slot_bytes + store_bytes);
          }
          bool all = true;
#pragma unroll
          for (int i = 0; i < Slots; ++i) {
            const bool both = has_arrived(first[i]) && has_arrived(second[i]);
            if (!both) missing_peer = source_of(first_slot + i);
            all = all && both;
          }
          return all;
        },
        wait_timed_out, [&] { return finds_mismatch(missing_peer); });
#pragma unroll
    for (int i = 0; i < Slots; ++i) {
      if constexpr (Packet::is_word) {
        units[i].words[0] = word(first[i].x, first[i].z);
        units[i].words[1] = word(second[i].x, second[i].z);
      } else {
        units[i].words[0] = word(first[i].x, first[i].y);
        units[i].words[1] = word(first[i].z, second[i].x);
        units[i].words[2] = word(second[i].y, second[i].z);
      }
    }
    return arrived;
  }

  // The lanes that have flags poll them. When all have arrived, all lanes load their data. Unwanted units become 0.
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

  // Called when a wait takes long. A rank in a different call waits too, because the flags differ: each rank announces
  // its call to the others and compares their announcements. Returns true and sets `peer` if that rank is in a
  // different call. The rank also records its announcement in its own slot, so that other threads do not repeat it.
  __device__ bool finds_mismatch(int& peer) const {
    PacketState* const own = state(peers_.rank);
    const uint32_t number = sequence_ + device::load_relaxed(&own->call_words.block_collectives);
    const CallWord word = CallWord::of(number, mark_);
    const auto announced = [&](int rank) { return state(rank)->call_words.announced[0][number % CallWords::history]; };
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

  const Peers& peers_;  // here scratch points to each rank's packet area
  uint32_t buffer_bytes_, rows_, mark_;
  uint32_t sequence_ = 0;  // number of the call
  uint32_t flag_ = 0;      // flag of its packets; 0: begin() has not been called
};

}  // namespace narrowcast::channel
