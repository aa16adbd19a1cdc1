// A warp of a kernel that reduces blocks. Every warp has one ring to each peer and one ring from each peer.
#pragma once

#include "executor/cuda/blocks/reduce_block.cuh"
#include "executor/cuda/blocks/warp.cuh"
#include "executor/cuda/scale.cuh"
#include "operation/scaled_sum.h"

namespace narrowcast::executor::cuda {

// State of a warp that is in shared memory, because the sums take all registers. Local memory would be slow: every wait
// for a peer invalidates the L1 cache, so it would be read from the L2 cache.
struct ReducingState {
  // By peer, and one more for the threads without a peer.
  channel::SenderEnd senders[channel::max_gpu_ranks + 1];
  channel::ReceiverEnd receivers[channel::max_gpu_ranks + 1];
  uint32_t turn;          // the turn that is being reduced
  uint32_t calls;         // the earlier calls
  uint32_t wire_vectors;  // vectors of 16 bytes put into slots
};

inline constexpr auto any_reduction = static_cast<ncast_redop>(7);

// In each turn the warp sends the blocks of its ring that other ranks reduce, reduces its own block, sends the result,
// and receives the results of the others. Transfers overlap with work: blocks are sent one turn before they are
// reduced, and results are received one turn later. A ring therefore carries the block of a turn and then the result of
// the previous turn, and both ends know this order. There is no deadlock: no step waits for a step that depends on it
// (tests/executor/cuda/block_pieces_test.cc simulates this).
//
// The whole warp calls every function. False: the communicator was stopped before, or by a failure reported here.
// Op: the reduction if it is known when the kernel is compiled; otherwise that of the call.
template <typename Codec, ncast_redop Op = any_reduction>
class ReducingWarp {
 public:
  __device__ ReducingWarp(const BlockCall& call, WarpMemory<Codec, ReducingState>& memory, SignalQueue& signals,
                          uint32_t ring, int thread)
      : call_(call),
        memory_(memory),
        state_(memory.state),
        queue_(signals),
        ring_(ring),
        thread_(thread),
        loader_(&memory.barrier, thread) {
    ReducingState& state = memory.state;
    if (thread <= channel::max_gpu_ranks) {
      state.senders[thread] = channel::SenderEnd::of(call.peers, call.layout, end(), Codec::values_bytes, true);
      state.receivers[thread] = channel::ReceiverEnd::of(call.peers, call.layout, end());
    }
    if (thread == 0) {
      state.turn = state.wire_vectors = 0;
      state.calls = earlier_calls<Codec>(call);
    }
    __syncwarp();
  }

  __device__ void run() {
    if (!run_turns(turns_ahead(call_.turns.slots))) return;
    device::wait_for_store_sources(thread_);
    receiver().close();
    sender().close();
    if (thread_ == 0 && state_.wire_vectors != 0)
      atomicAdd(&call_.byte_counters->wire_bytes, uint64_t{state_.wire_vectors} * format::alignment);
  }

 private:
  // What a payload contains; the numbers are those of BlockContext::stage.
  enum Stage : uint32_t { contribution = 0, result = 1 };

  // A block for the peer `step` ranks after this one, or, as the last step, for several peers. 0 bytes: there is no
  // block.
  struct Sending {
    int step;
    EndMask to;
    BlockSpan values;
  };

  __device__ bool run_turns(uint32_t ahead) {
    const uint32_t turns = call_.turns.count;
    for (uint32_t early = 0; early < ahead; ++early)
      if (!send(early, [&] { return first_to_send(early + 1); })) return false;
    for (; turn() < turns + (call_.gathers ? ahead : 0); next_turn()) {
      const auto receives = [&] { return call_.gathers && turn() >= ahead; };
      const auto next = [&] { return first_to_send(turn() + 1 + ahead); };
      if (!send(turn() + ahead, [&] { return own_block(turn()); })) return false;
      if (!reduce([&] { return receives() ? BlockSpan{nullptr, 0} : next(); })) return false;
      if (receives() && !receive_results(turn() - ahead, next)) return false;
    }
    return true;
  }

  __device__ ncast_redop op() const { return Op == any_reduction ? call_.op : Op; }
  __device__ uint32_t turn() const { return state_.turn; }
  __device__ void next_turn() {
    __syncwarp();
    if (thread_ == 0) ++state_.turn;
    __syncwarp();
  }

  // Thread i holds the ends of the rings to and from rank i.
  __device__ End end() const {
    const bool is_peer = thread_ < call_.peers.ranks && thread_ != call_.peers.rank;
    return is_peer ? End{thread_, ring_, call_.turns.slots} : End{-1, 0, 0};
  }
  __device__ int end_index() const { return min(thread_, channel::max_gpu_ranks); }
  __device__ channel::SlotSender sender() {
    return {call_.peers,         call_.layout, end(),   state_.senders[end_index()],
            Codec::values_bytes, queue_,       thread_, signals_};
  }
  __device__ channel::SlotReceiver receiver() {
    return {call_.peers, call_.layout, end(), state_.receivers[end_index()], Codec::values_bytes, thread_};
  }
  // opaque() makes the compiler recompute the address at every use, because keeping it would take registers from the
  // sums.
  __device__ char* buffer(uint32_t number) const { return memory_.buffers[device::opaque(number)]; }
  __device__ char* current_buffer() const { return buffer(current_); }
  __device__ char* next_buffer() const { return buffer(current_ ^ 1); }
  __device__ char* encoded_buffer() const { return buffer(2); }
  __device__ void swap() { current_ ^= 1; }
  // The number of the ring's block in a turn.
  __device__ uint32_t number(uint32_t turn) const { return ring_ + turn * call_.turns.rings; }
  __device__ BlockSpan block(const Piece& piece, uint32_t turn) const {
    return block_of<Codec::values_bytes>(piece, number(turn));
  }
  __device__ BlockSpan own_block(uint32_t turn) const { return block(call_.own, turn); }
  // The first block to send in a turn from this step on. Steps start at the next rank, so at any time every rank sends
  // to a different peer.
  __device__ Sending sending(uint32_t turn, int step) const {
    const int rank = call_.peers.rank, ranks = call_.peers.ranks;
    for (; step < ranks; ++step) {
      const int peer = rank + step < ranks ? rank + step : rank + step - ranks;
      const BlockSpan values = block(call_.send[peer], turn);
      if (values.bytes == 0) continue;
      if (call_.sent_together != 0) return {ranks, call_.sent_together, values};
      return {step, 1u << peer, values};
    }
    return {step, 0, {nullptr, 0}};
  }
  __device__ BlockSpan first_to_send(uint32_t turn) const { return sending(turn, 1).values; }

  // Starts to load values into next_buffer(), which is no longer in use.
  __device__ void prefetch(const BlockSpan& values) {
    if (values.bytes == 0) return;
    device::order_stores_before_bulk_copies();
    loader_.start(next_buffer(), values.values, values.bytes);
    loading_ = true;
  }
  // Makes values available in current_buffer(); prefetch() may have started to load them. Waits until no store reads a
  // buffer.
  __device__ void load(const BlockSpan& values) {
    device::wait_for_store_sources(thread_);
    if (!loading_) prefetch(values);
    swap();
    loader_.wait();
    loading_ = false;
  }

  // Whether the values that this rank contributes are multiplied.
  __device__ bool has_factor() const { return can_scale<Codec::dtype> && call_.op == operation::scaled_sum; }
  // Multiplies a block of them.
  __device__ void scale(char* values) {
    if constexpr (can_scale<Codec::dtype>)
      scale_block<Codec::dtype, Codec::values_bytes>(values, call_.factor, thread_);
    __syncwarp();
  }

  // Contributions or results can be raw where the others are encoded with loss.
  __device__ bool is_raw(Stage stage) const {
    return !Codec::is_exact && (stage == contribution ? call_.codec : call_.result_codec) == NCAST_CODEC_RAW;
  }
  __device__ const device::Parameters<Codec>& parameters_of(Stage stage) const {
    return stage == contribution ? memory_.parameters : memory_.result_parameters;
  }
  __device__ device::BlockContext context_of(Stage stage, const BlockSpan& block) const {
    return cuda::context_of<Codec>(call_, state_.calls, block.values, call_.values, stage);
  }

  // Puts a block of values, encoded, into the next slot of each of these peers.
  __device__ PayloadSize put(EndMask peers, Stage stage, const BlockSpan& block, const char* values, uint32_t turn) {
    const PayloadSize size = is_raw(stage) ? raw_payload(block.bytes)
                                           : encode<Codec>(parameters_of(stage), context_of(stage, block), values,
                                                           block.bytes, encoded_buffer(), memory_.scratch, thread_);
    channel::SlotSender sender = this->sender();
    if (!sender.reserve(peers)) return {};
    sender.put(peers, size.is_coded() ? encoded_buffer() : values, size, number(turn), false);
    signals_ = sender.signals();
    if (thread_ == 0) state_.wire_vectors += size.bytes() / format::alignment * __popc(peers);
    return size;
  }

  // Sends the blocks of a turn, then prefetches after().
  template <typename After>
  __device__ bool send(uint32_t turn, After after) {
    Sending current = sending(turn, 1);
    while (current.values.bytes != 0) {
      load(current.values);
      if (has_factor()) scale(current_buffer());
      const Sending next = sending(turn, current.step + 1);
      prefetch(next.values.bytes != 0 ? next.values : after());
      if (!put(current.to, contribution, current.values, current_buffer(), turn)) return false;
      current = next;
    }
    return true;
  }

  // Sources are in rank order. On rank 0 the first two are swapped, because this rank's own values arrive last. The
  // result is the same: reduced() commutes.
  __device__ int source_of(int position) const {
    return call_.peers.rank == 0 && position < 2 ? 1 - position : position;
  }
  // Starts to load a payload of this turn from `source`, whose values are raw_bytes. Returns none if there is none or
  // it is invalid.
  __device__ PayloadSize start(Stage stage, const channel::SlotReceiver::Payload& payload, int source, uint32_t turn,
                               uint32_t raw_bytes, char* to) {
    const PayloadSize size = payload.flag.payload();
    if (!size) return size;
    if (payload.flag.block() != number(turn) || (is_raw(stage) && size.is_coded()) ||
        !is_valid_payload<Codec>(parameters_of(stage), size, raw_bytes)) {
      report_corrupt(call_.peers, source, thread_);
      return {};
    }
    start_loading_payload(to, payload.data, size.bytes(), thread_);
    return size;
  }
  // The values of a payload; NULL if the payload is invalid.
  __device__ const char* values_of(Stage stage, const char* payload, PayloadSize size, int source) {
    if (Codec::is_identity || !size.is_coded()) return payload;
    const bool decoded = device::decode_block<Codec>(parameters_of(stage), payload, size.bytes(), encoded_buffer(),
                                                     memory_.scratch, thread_);
    __syncwarp();  // all lanes have decoded
    if (decoded) return encoded_buffer();
    report_corrupt(call_.peers, source, thread_);
    return nullptr;
  }

  // Reduces this rank's block of this turn.
  template <typename After>
  __device__ bool reduce(After after) {
    const uint32_t raw_bytes = own_block(turn()).bytes;
    if (raw_bytes == 0) return true;
    const int rank = call_.peers.rank, ranks = call_.peers.ranks;
    device::wait_for_store_sources(thread_);
    if (!loading_) prefetch(own_block(turn()));
    if (has_factor()) {  // now, because the function that multiplies could not keep the sums in registers
      loader_.wait();
      loading_ = false;
      scale(next_buffer());
    }
    using Sums = BlockSums<Codec::dtype, Codec::values_bytes>;
    if constexpr (!Codec::is_exact) {
      if (ranks == 2) {  // both terms are in shared memory at once, so no register has to keep a sum
        const char* const term = contribution_of(1 - rank, raw_bytes);
        if (term == nullptr) return false;
        if (loading_) loader_.wait();
        loading_ = false;
        Sums::add(op(), term, next_buffer(), thread_);
        __syncwarp();
        swap();
        prefetch(after());
        return finish(raw_bytes);
      }
    }
    Sums sums;
    PayloadSize arriving{};  // the payload that is being loaded
    for (int position = 0; position < ranks; ++position) {
      const int source = source_of(position);
      const char* term;
      if (source == rank) {
        if (loading_) loader_.wait();
        loading_ = false;
        term = next_buffer();
      } else {
        if (!arriving)
          arriving = start(contribution, receiver().wait(source), source, turn(), raw_bytes, current_buffer());
        if (!arriving) return false;
        wait_for_payload();
        receiver().release(source);
        term = values_of(contribution, current_buffer(), arriving, source);
        if (term == nullptr) return false;
      }
      if (position == 0) {
        sums.set(term, thread_);
      } else {
        sums.reduce(Codec::is_exact ? op() : NCAST_SUM, term, thread_);  // lossy codecs are for sums and averages
      }
      __syncwarp();  // all lanes have read it
      if (source == rank) continue;
      arriving = {};
      int next = position + 1;
      if (next < ranks && source_of(next) == rank) ++next;
      if (next == ranks) continue;
      next = source_of(next);
      arriving = start(contribution, receiver().poll(next), next, turn(), raw_bytes, current_buffer());
    }
    swap();
    prefetch(after());

    sums.finish(op(), ranks, current_buffer(), thread_);
    __syncwarp();
    return finish(raw_bytes);
  }
  // Waits for the block that `source` contributes to this turn and returns its values. NULL: stopped, or invalid.
  __device__ const char* contribution_of(int source, uint32_t raw_bytes) {
    const PayloadSize size = start(contribution, receiver().wait(source), source, turn(), raw_bytes, current_buffer());
    if (!size) return nullptr;
    wait_for_payload();
    receiver().release(source);
    return values_of(contribution, current_buffer(), size, source);
  }
  // Sends and stores this rank's block of results, which is in current_buffer().
  __device__ bool finish(uint32_t raw_bytes) {
    if constexpr (Codec::is_exact) {
      store_reduced(raw_bytes);
      return call_.forward == 0 || put(call_.forward, result, own_block(turn()), current_buffer(), turn());
    } else {
      if (call_.forward != 0 && !put_and_decode()) return false;
      store_reduced(raw_bytes);
      return true;
    }
  }
  __device__ void store_reduced(uint32_t raw_bytes) {
    if (call_.reduced.values != nullptr)
      store_values(call_.reduced.values + uint64_t{number(turn())} * Codec::values_bytes, current_buffer(), raw_bytes,
                   thread_);
  }
  // Sends the result and replaces current_buffer() by the decoded payload, which is what the other ranks get.
  __device__ bool put_and_decode() {
    const PayloadSize size = put(call_.forward, result, own_block(turn()), current_buffer(), turn());
    if (!size.is_coded()) return static_cast<bool>(size);
    __syncwarp();  // all lanes have read encoded_buffer() and current_buffer()
    device::decode_block<Codec>(memory_.result_parameters, encoded_buffer(), size.bytes(), current_buffer(),
                                memory_.scratch, thread_);
    __syncwarp();
    return true;
  }

  // Receives the results of the other ranks in a turn, in any order.
  template <typename After>
  __device__ bool receive_results(uint32_t turn, After after) {
    const bool has_result = thread_ < call_.peers.ranks && block(call_.recv[thread_], turn).bytes != 0;
    EndMask open = __ballot_sync(device::all_lanes, has_result);
    struct Result {
      PayloadSize size{};  // initially none
      int end;
    };
    const auto start_any = [&](char* to, bool wait) -> Result {
      const channel::SlotReceiver::Payload payload = receiver().next(open, 0, wait);
      return {start(result, payload, payload.end, turn, block(call_.recv[payload.end], turn).bytes, to), payload.end};
    };
    Result arriving;
    device::wait_for_store_sources(thread_);
    while (open != 0) {
      if (!arriving.size) arriving = start_any(current_buffer(), true);
      if (!arriving.size) return false;
      const Result payload = arriving;
      wait_for_payload();
      receiver().release(payload.end);
      device::wait_for_store_sources(thread_);  // the last block may be stored from either buffer
      open &= ~(1u << payload.end);
      arriving.size = {};
      if (open != 0) {
        arriving = start_any(next_buffer(), false);
      } else {
        prefetch(after());
      }
      const BlockSpan place = block(call_.recv[payload.end], turn);
      const char* const values = values_of(result, current_buffer(), payload.size, payload.end);
      if (values == nullptr) return false;
      store_values(place.values, values, place.bytes, thread_);
      if (open != 0) swap();
    }
    return true;
  }

  const BlockCall& call_;
  WarpMemory<Codec, ReducingState>& memory_;
  ReducingState& state_;
  SignalQueue& queue_;
  uint32_t ring_;
  int thread_;
  ValueLoader loader_;
  uint32_t signals_ = 0;  // pushed in this call
  uint32_t current_ = 0;  // index of the current buffer, 0 or 1; the other one is the next buffer
  bool loading_ = false;  // into next_buffer()
};

}  // namespace narrowcast::executor::cuda
