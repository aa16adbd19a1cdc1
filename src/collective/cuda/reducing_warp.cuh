// What a warp of a block kernel does that reduces. All do the same: each has one lane to every peer and from every peer.
#pragma once

#include "collective/cuda/block_warp.cuh"
#include "collective/cuda/reduce_block.cuh"

namespace narrowcast::collective::cuda {

// Is a + b the same as b + a, to the bit? Of equals MIN and MAX keep the first, which may be -0 or +0.
__device__ inline bool commutes(ncast_redop op) { return op != NCAST_MIN && op != NCAST_MAX; }

// Turn by turn the warp sends the blocks of its lane that others reduce, reduces its own and passes the result on, and takes
// the others' results. A payload comes while the warp does something else: blocks are sent a turn before they are reduced,
// and results taken a turn after. So a lane carries the block of a turn, then the result of the turn before: both ends know
// that order. Nobody waits for what comes after its own doing (tests/collective/block_pieces_test.cc has the proof by trial).
//
// The whole warp calls every function. False: the communicator is stopped, here or by a failure that was reported.
template <typename Coding, ncast_dtype Dtype>
class ReducingWarp {
 public:
  __device__ ReducingWarp(const BlockCall& call, WarpMemory<Coding>& memory, SignalQueue& signals, uint32_t lane,
                          int thread)
      : call_(call),
        memory_(memory),
        signals_(signals),
        lane_(lane),
        thread_(thread),
        loader_(&memory.barrier, thread),
        sent_(channel::SlotSender(call.peers, call.layout, end(), Coding::block_bytes, signals, thread).progress()),
        received_(channel::SlotReceiver(call.peers, call.layout, end(), Coding::block_bytes, thread).progress()) {}

  __device__ void run() {
    if (!run_turns(turns_ahead(call_.turns.slots))) return;
    device::wait_for_stores(thread_);
    receiver().close();
    sender().close();
    if (thread_ == 0 && wire_vectors_ != 0) atomicAdd(call_.wire_bytes, uint64_t{wire_vectors_} * format::alignment);
  }

 private:
  // A block that goes to the peer that is `step` ranks on. Of 0 bytes: there is none.
  struct Sending {
    int step, peer;
    BlockOf values;
  };

  __device__ bool run_turns(uint32_t ahead) {
    const uint32_t turns = call_.turns.count;
    for (uint32_t turn = 0; turn < ahead; ++turn)
      if (!send(turn, [&] { return first_of(turn + 1); })) return false;
    for (uint32_t turn = 0; turn < turns + (call_.gathers ? ahead : 0); ++turn) {
      const bool takes = call_.gathers && turn >= ahead;
      const auto next = [&] { return first_of(turn + 1 + ahead); };
      if (!send(turn + ahead, [&] { return own_of(turn); })) return false;
      if (!reduce(turn, [&] { return takes ? BlockOf{nullptr, 0} : next(); })) return false;
      if (takes && !take(turn - ahead, next)) return false;
    }
    return true;
  }

  // Each thread has the end of the peer of its number. Ends are made anew wherever they are used, which the compiler would not
  // do: their addresses would take registers from the sums.
  __device__ End end() const {
    const bool is_peer = thread_ < call_.peers.ranks && thread_ != call_.peers.rank;
    return is_peer ? End{thread_, device::hidden(lane_), call_.turns.slots} : End{-1, 0, 0};
  }
  __device__ channel::SlotSender sender() const {
    return {call_.peers, call_.layout, end(), Coding::block_bytes, signals_, thread_, sent_};
  }
  __device__ channel::SlotReceiver receiver() const {
    return {call_.peers, call_.layout, end(), Coding::block_bytes, thread_, received_};
  }
  __device__ char* buffer(uint32_t number) const { return memory_.buffers[number]; }
  __device__ char* here() const { return buffer(here_); }
  __device__ char* later() const { return buffer(here_ ^ 1); }
  __device__ char* coded() const { return buffer(2); }
  __device__ void swap() { here_ ^= 1; }
  // The lane's block of that turn.
  __device__ uint32_t number(uint32_t turn) const { return lane_ + turn * call_.turns.lanes; }
  __device__ BlockOf block(const Piece& piece, uint32_t turn) const {
    return block_of<Coding::block_bytes>(piece, number(turn));
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
  __device__ bool put(EndMask peers, const char* values, uint32_t raw_bytes, uint32_t turn) {
    uint32_t bytes = static_cast<uint32_t>(format::aligned(raw_bytes));
    if (raw_bytes == Coding::block_bytes) bytes = Coding::encode(values, coded(), memory_.scratch, thread_);
    const bool raw = bytes == Coding::block_bytes || raw_bytes != Coding::block_bytes;
    channel::SlotSender sender = this->sender();
    if (!sender.reserve(peers)) return false;
    sender.put(peers, raw ? values : coded(), bytes, number(turn), false);
    sent_ = sender.progress();
    wire_vectors_ += bytes / format::alignment * __popc(peers);
    return true;
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

  __device__ void release(int peer) {
    channel::SlotReceiver receiver = this->receiver();
    receiver.release(peer);
    received_ = receiver.progress();
  }

  // In the order of the ranks, but for the first two where that is the same: this rank's own values are there last.
  __device__ int source_of(int position) const {
    return call_.peers.rank == 0 && position < 2 && commutes(call_.op) ? 1 - position : position;
  }
  // A payload's values that are to fill `block`; NULL: they do not.
  __device__ const char* values_of(const Arriving& arriving, const char* payload, const BlockOf& block) {
    if (arriving.block.values == block.values) {
      if (is_raw<Coding>(arriving)) return payload;
      const bool decoded = Coding::decode(payload, arriving.bytes, coded(), memory_.scratch, thread_);
      __syncwarp();  // all lanes have decoded
      if (decoded) return coded();
    }
    report_corrupt(call_.peers, arriving.end, thread_);
    return nullptr;
  }

  // Reduces this rank's block of a turn.
  template <typename After>
  __device__ bool reduce(uint32_t turn, After after) {
    const BlockOf own = own_of(turn);
    if (own.bytes == 0) return true;
    const int rank = call_.peers.rank, ranks = call_.peers.ranks;
    device::wait_for_store_sources(thread_);
    if (!loading_) prefetch(own);
    char *const own_values = later(), *const payload = here();
    const auto start = [&](int position, bool wait) {
      const int source = source_of(position);
      channel::SlotReceiver receiver = this->receiver();
      return start_payload<Coding>(call_, call_.own, source, wait ? receiver.wait(source) : receiver.poll(source),
                                   payload, thread_);
    };
    BlockSums<Dtype, Coding::block_bytes> sums;
    Arriving arriving;
    for (int position = 0; position < ranks; ++position) {
      const char* term = own_values;
      if (source_of(position) == rank) {
        loader_.wait();
        loading_ = false;
      } else {
        if (arriving.bytes == 0) arriving = start(position, true);
        if (arriving.bytes == 0) return false;
        wait_for_payload();
        release(arriving.end);
        term = values_of(arriving, payload, own);
        if (term == nullptr) return false;
      }
      if (position == 0) {
        sums.set(term, thread_);
      } else {
        sums.reduce(call_.op, term, thread_);
      }
      __syncwarp();  // all lanes have read it
      if (source_of(position) == rank) continue;
      arriving.bytes = 0;
      int later = position + 1;
      if (later < ranks && source_of(later) == rank) ++later;
      if (later < ranks) arriving = start(later, false);
    }
    swap();
    prefetch(after());

    sums.finish(call_.op, ranks, own_values, thread_);
    __syncwarp();
    if (call_.reduced.values != nullptr)
      store_values(call_.reduced.values + uint64_t{number(turn)} * Coding::block_bytes, own_values, own.bytes, thread_);
    return call_.forward == 0 || put(call_.forward, own_values, own.bytes, turn);
  }

  // Takes the others' results of a turn, as they come.
  template <typename After>
  __device__ bool take(uint32_t turn, After after) {
    const bool comes = thread_ < call_.peers.ranks && block(call_.recv[thread_], turn).bytes != 0;
    EndMask open = __ballot_sync(device::all_lanes, comes);
    const auto start = [&](char* to, int first, bool wait) {
      const channel::SlotReceiver::Payload payload = receiver().next(open, first, wait);
      return start_payload<Coding>(call_, call_.recv[payload.end], payload.end, payload, to, thread_);
    };
    Arriving arriving;
    device::wait_for_store_sources(thread_);
    while (open != 0) {
      if (arriving.bytes == 0) arriving = start(here(), 0, true);
      if (arriving.bytes == 0) return false;
      const Arriving payload = arriving;
      wait_for_payload();
      release(payload.end);
      device::wait_for_store_sources(thread_);  // of the last block: its buffer may be either
      open &= ~(1u << payload.end);
      arriving.bytes = 0;
      if (open != 0) {
        arriving = start(later(), 0, false);
      } else {
        prefetch(after());
      }
      const BlockOf place = block(call_.recv[payload.end], turn);
      const char* const values = values_of(payload, here(), place);
      if (values == nullptr) return false;
      store_values(place.values, values, place.bytes, thread_);
      if (open != 0) swap();
    }
    return true;
  }

  const BlockCall& call_;
  WarpMemory<Coding>& memory_;
  SignalQueue& signals_;
  uint32_t lane_;
  int thread_;
  ValueLoader loader_;
  channel::SlotSender::Progress sent_;
  channel::SlotReceiver::Progress received_;
  uint32_t here_ = 0;     // the buffer of the values that are worked on; the other's are those after them
  bool loading_ = false;  // into later()
  uint32_t wire_vectors_ = 0;
};

}  // namespace narrowcast::collective::cuda
