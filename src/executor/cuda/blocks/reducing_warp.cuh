// What a warp of a block kernel does that reduces. All do the same: each has one ring to every peer and from every
// peer.
#pragma once

#include "executor/cuda/blocks/reduce_block.cuh"
#include "executor/cuda/blocks/warp.cuh"

namespace narrowcast::executor::cuda {

// Is a + b the same as b + a, to the bit? Of equals MIN and MAX keep the first, which may be -0 or +0.
__device__ inline bool commutes(ncast_redop op) { return op != NCAST_MIN && op != NCAST_MAX; }

// What a warp keeps in shared memory. Registers are for the sums; what the compiler would put into local memory instead
// would come from the L2 cache, since every wait for a peer empties the L1.
struct ReducingState {
  // By the peer, and one more for the threads that have none.
  channel::SenderEnd senders[channel::max_gpu_ranks + 1];
  channel::ReceiverEnd receivers[channel::max_gpu_ranks + 1];
  uint32_t turn;          // that is reduced
  uint32_t wire_vectors;  // put into slots
};

// Turn by turn the warp sends the blocks of its ring that others reduce, reduces its own and passes the result on, and
// takes the others' results. A payload comes while the warp does something else: blocks are sent a turn before they are
// reduced, and results taken a turn after. So a ring carries the block of a turn, then the result of the turn before:
// both ends know that order. Nobody waits for what comes after its own doing (tests/executor/cuda/block_pieces_test.cc
// has the proof by trial).
//
// The whole warp calls every function. False: the communicator is stopped, here or by a failure that was reported.
template <typename Codec>
class ReducingWarp {
 public:
  __device__ ReducingWarp(const BlockCall& call, WarpMemory<Codec>& memory, ReducingState& state, SignalQueue& signals,
                          uint32_t ring, int thread)
      : call_(call),
        memory_(memory),
        state_(state),
        queue_(signals),
        ring_(ring),
        thread_(thread),
        loader_(&memory.barrier, thread) {
    if (thread <= channel::max_gpu_ranks) {
      state.senders[thread] = channel::SenderEnd::of(call.peers, call.layout, end());
      state.receivers[thread] = channel::ReceiverEnd::of(call.peers, call.layout, end());
    }
    if (thread == 0) state.turn = state.wire_vectors = 0;
    __syncwarp();
  }

  __device__ void run() {
    if (!run_turns(turns_ahead(call_.turns.slots))) return;
    device::wait_for_store_sources(thread_);
    receiver().close();
    sender().close();
    if (thread_ == 0 && state_.wire_vectors != 0)
      atomicAdd(&call_.sent->wire_bytes, uint64_t{state_.wire_vectors} * format::alignment);
  }

 private:
  // A block that goes to the peer that is `step` ranks on. Of 0 bytes: there is none.
  struct Sending {
    int step, peer;
    BlockOf values;
  };

  __device__ bool run_turns(uint32_t ahead) {
    const uint32_t turns = call_.turns.count;
    for (uint32_t early = 0; early < ahead; ++early)
      if (!send(early, [&] { return first_of(early + 1); })) return false;
    for (; turn() < turns + (call_.gathers ? ahead : 0); next_turn()) {
      const auto takes = [&] { return call_.gathers && turn() >= ahead; };
      const auto next = [&] { return first_of(turn() + 1 + ahead); };
      if (!send(turn() + ahead, [&] { return own_of(turn()); })) return false;
      if (!reduce([&] { return takes() ? BlockOf{nullptr, 0} : next(); })) return false;
      if (takes() && !take(turn() - ahead, next)) return false;
    }
    return true;
  }

  __device__ uint32_t turn() const { return state_.turn; }
  __device__ void next_turn() {
    __syncwarp();
    if (thread_ == 0) ++state_.turn;
    __syncwarp();
  }

  // Each thread has the end of the peer of its number.
  __device__ End end() const {
    const bool is_peer = thread_ < call_.peers.ranks && thread_ != call_.peers.rank;
    return is_peer ? End{thread_, ring_, call_.turns.slots} : End{-1, 0, 0};
  }
  __device__ int place_of_end() const { return min(thread_, channel::max_gpu_ranks); }
  __device__ channel::SlotSender sender() {
    return {call_.peers,         call_.layout, end(),   state_.senders[place_of_end()],
            Codec::values_bytes, queue_,       thread_, signals_};
  }
  __device__ channel::SlotReceiver receiver() {
    return {call_.peers, call_.layout, end(), state_.receivers[place_of_end()], Codec::values_bytes, thread_};
  }
  // The address is worked out wherever it is used, or it would take registers from the sums.
  __device__ char* buffer(uint32_t number) const { return memory_.buffers[device::hidden(number)]; }
  __device__ char* here() const { return buffer(here_); }
  __device__ char* later() const { return buffer(here_ ^ 1); }
  __device__ char* coded() const { return buffer(2); }
  __device__ void swap() { here_ ^= 1; }
  // The ring's block of that turn.
  __device__ uint32_t number(uint32_t turn) const { return ring_ + turn * call_.turns.rings; }
  __device__ BlockOf block(const Piece& piece, uint32_t turn) const {
    return block_of<Codec::values_bytes>(piece, number(turn));
  }
  __device__ BlockOf own_of(uint32_t turn) const { return block(call_.own, turn); }
  // From the next rank on: at the same time every rank sends to another one.
  __device__ Sending sending(uint32_t turn, int step) const {
    const int rank = call_.peers.rank, ranks = call_.peers.ranks;
    for (; step < ranks; ++step) {
      const int peer = rank + step < ranks ? rank + step : rank + step - ranks;
      const BlockOf values = block(call_.send[peer], turn);
      if (values.bytes != 0) return {step, peer, values};
    }
    return {step, -1, {nullptr, 0}};
  }
  __device__ BlockOf first_of(uint32_t turn) const { return sending(turn, 1).values; }

  // Starts to bring values to later(), which nobody reads any more.
  __device__ void prefetch(const BlockOf& values) {
    if (values.bytes == 0) return;
    device::order_stores_before_bulk_copies();
    loader_.start(later(), values.values, values.bytes);
    loading_ = true;
  }
  // Brings values to here(), if they are not on their way already. No buffer is read by a store any more.
  __device__ void load(const BlockOf& values) {
    device::wait_for_store_sources(thread_);
    if (!loading_) prefetch(values);
    swap();
    loader_.wait();
    loading_ = false;
  }

  // Puts a block of values, encoded, into the next slot of each of these peers.
  __device__ PayloadSize put(EndMask peers, const char* values, uint32_t raw_bytes, uint32_t turn) {
    const PayloadSize size = encode<Codec>(call_.codec, values, raw_bytes, coded(), memory_.scratch, thread_);
    channel::SlotSender sender = this->sender();
    if (!sender.reserve(peers)) return {};
    sender.put(peers, size.is_coded() ? coded() : values, size, number(turn), false);
    signals_ = sender.signals();
    if (thread_ == 0) state_.wire_vectors += size.bytes() / format::alignment * __popc(peers);
    return size;
  }

  // Sends the blocks of a turn; after() is what is needed next.
  template <typename After>
  __device__ bool send(uint32_t turn, After after) {
    Sending now = sending(turn, 1);
    while (now.values.bytes != 0) {
      load(now.values);
      const Sending next = sending(turn, now.step + 1);
      prefetch(next.values.bytes != 0 ? next.values : after());
      if (!put(1u << now.peer, here(), now.values.bytes, turn)) return false;
      now = next;
    }
    return true;
  }

  // In the order of the ranks, but for the first two where that is the same: this rank's own values are there last.
  __device__ int source_of(int position) const {
    return call_.peers.rank == 0 && position < 2 && commutes(call_.op) ? 1 - position : position;
  }
  // Starts to load a payload of this turn from `source`, whose values are raw_bytes. Returns none if there is none or
  // it is invalid.
  __device__ PayloadSize start(const channel::SlotReceiver::Payload& payload, int source, uint32_t turn,
                               uint32_t raw_bytes, char* to) {
    const PayloadSize size = payload.flag.payload();
    if (!size) return size;
    if (payload.flag.block() != number(turn) || !can_be_of<Codec>(call_.codec, size, raw_bytes)) {
      report_corrupt(call_.peers, source, thread_);
      return {};
    }
    start_loading_payload(to, payload.data, size.bytes(), thread_);
    return size;
  }
  // The values of a payload; NULL: it does not follow the format.
  __device__ const char* values_of(const char* payload, PayloadSize size, int source) {
    if (Codec::is_identity || !size.is_coded()) return payload;
    const bool decoded =
        device::decode_block<Codec>(call_.codec, payload, size.bytes(), coded(), memory_.scratch, thread_);
    __syncwarp();  // all lanes have decoded
    if (decoded) return coded();
    report_corrupt(call_.peers, source, thread_);
    return nullptr;
  }

  // Reduces this rank's block of this turn.
  template <typename After>
  __device__ bool reduce(After after) {
    const uint32_t raw_bytes = own_of(turn()).bytes;
    if (raw_bytes == 0) return true;
    const int rank = call_.peers.rank, ranks = call_.peers.ranks;
    device::wait_for_store_sources(thread_);
    if (!loading_) prefetch(own_of(turn()));
    BlockSums<Codec::dtype, Codec::values_bytes> sums;
    PayloadSize arriving{};  // the payload that is on its way
    for (int position = 0; position < ranks; ++position) {
      const int source = source_of(position);
      const char* term;
      if (source == rank) {
        loader_.wait();
        loading_ = false;
        term = later();
      } else {
        if (!arriving) arriving = start(receiver().wait(source), source, turn(), raw_bytes, here());
        if (!arriving) return false;
        wait_for_payload();
        receiver().release(source);
        term = values_of(here(), arriving, source);
        if (term == nullptr) return false;
      }
      if (position == 0) {
        sums.set(term, thread_);
      } else {
        sums.reduce(call_.op, term, thread_);
      }
      __syncwarp();  // all lanes have read it
      if (source == rank) continue;
      arriving = {};
      int next = position + 1;
      if (next < ranks && source_of(next) == rank) ++next;
      if (next == ranks) continue;
      next = source_of(next);
      arriving = start(receiver().poll(next), next, turn(), raw_bytes, here());
    }
    swap();
    prefetch(after());

    sums.finish(call_.op, ranks, here(), thread_);
    __syncwarp();
    if constexpr (Codec::is_exact) {
      store_reduced(raw_bytes);
      return call_.forward == 0 || put(call_.forward, here(), raw_bytes, turn());
    } else {
      if (call_.forward != 0 && !put_and_decode(raw_bytes)) return false;
      store_reduced(raw_bytes);
      return true;
    }
  }
  __device__ void store_reduced(uint32_t raw_bytes) {
    if (call_.reduced.values != nullptr)
      store_values(call_.reduced.values + uint64_t{number(turn())} * Codec::values_bytes, here(), raw_bytes, thread_);
  }
  // Passes the result on, and leaves in here() what its payload decodes to, as the other ranks get it.
  __device__ bool put_and_decode(uint32_t raw_bytes) {
    const PayloadSize size = put(call_.forward, here(), raw_bytes, turn());
    if (!size.is_coded()) return static_cast<bool>(size);
    __syncwarp();  // all lanes have read coded() and here()
    device::decode_block<Codec>(call_.codec, coded(), size.bytes(), here(), memory_.scratch, thread_);
    __syncwarp();
    return true;
  }

  // Takes the others' results of a turn, as they come.
  template <typename After>
  __device__ bool take(uint32_t turn, After after) {
    const bool comes = thread_ < call_.peers.ranks && block(call_.recv[thread_], turn).bytes != 0;
    EndMask open = __ballot_sync(device::all_lanes, comes);
    struct Result {
      PayloadSize size{};  // none at first
      int end;
    };
    const auto start_any = [&](char* to, bool wait) -> Result {
      const channel::SlotReceiver::Payload payload = receiver().next(open, 0, wait);
      return {start(payload, payload.end, turn, block(call_.recv[payload.end], turn).bytes, to), payload.end};
    };
    Result arriving;
    device::wait_for_store_sources(thread_);
    while (open != 0) {
      if (!arriving.size) arriving = start_any(here(), true);
      if (!arriving.size) return false;
      const Result payload = arriving;
      wait_for_payload();
      receiver().release(payload.end);
      device::wait_for_store_sources(thread_);  // of the last block: its buffer may be either
      open &= ~(1u << payload.end);
      arriving.size = {};
      if (open != 0) {
        arriving = start_any(later(), false);
      } else {
        prefetch(after());
      }
      const BlockOf place = block(call_.recv[payload.end], turn);
      const char* const values = values_of(here(), payload.size, payload.end);
      if (values == nullptr) return false;
      store_values(place.values, values, place.bytes, thread_);
      if (open != 0) swap();
    }
    return true;
  }

  const BlockCall& call_;
  WarpMemory<Codec>& memory_;
  ReducingState& state_;
  SignalQueue& queue_;
  uint32_t ring_;
  int thread_;
  ValueLoader loader_;
  uint32_t signals_ = 0;  // pushed
  uint32_t here_ = 0;     // the buffer of the values that are worked on; the other's are those after them
  bool loading_ = false;  // into later()
};

}  // namespace narrowcast::executor::cuda
