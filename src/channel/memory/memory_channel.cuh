// The sending and receiving ends of memory channels in a kernel. A warp holds several ends, one in each of its threads:
// either the ends of one ring number for several peers, or those of several rings of one peer.
#pragma once

#include "channel/memory/memory_channel.h"
#include "channel/memory/signal_warp.cuh"
#include "channel/peer/bounded_wait.cuh"
#include "device/ptx/bulk_copy.cuh"
#include "device/warp.cuh"

namespace narrowcast::channel {

// A set of the warp's ends: bit i is the end that thread i holds.
using EndMask = uint32_t;

// The end that a thread holds, and the number of slots into which this call divides the ring (a power of two). peer is
// -1 if the thread holds none.
struct End {
  int peer;
  uint32_t ring;
  uint32_t slots;
};

template <typename T>
__device__ T* in_scratch(const Peers& peers, int rank, size_t offset) {
  return reinterpret_cast<T*>(peers.scratch[rank] + offset);
}

// State of a sending end that a thread holds: addresses in its own and the peer's scratch, and counts. A kernel may
// keep it in shared memory to save registers.
struct SenderEnd {
  char* slot_data;
  uint64_t* flags;
  const uint32_t* credit;
  SentState* stored;
  uint32_t sent, granted;
  // Whether a payload may be written as soon as a slot is free. Otherwise, before the first payload of a call that
  // divides the ring into other slots than the last call, the ring must be empty.
  bool open;

  // Loads the state at the beginning of a call. That includes the credit, so that the first payload need not wait for
  // it if the peer has released the earlier ones, as it usually has. A relaxed load is enough, as in
  // SlotReceiver::grant(): the sender's stores to the slots depend on it.
  // slot_bytes: of a slot in this call. is_collective: sends wait for an empty ring, because their receivers may be
  // behind by any number of calls, and only some announcements are kept (CallWords).
  __device__ static SenderEnd of(const Peers& peers, const ChannelLayout& layout, End end, uint32_t slot_bytes,
                                 bool is_collective) {
    if (end.peer < 0) return {};
    auto* const stored = in_scratch<SentState>(peers, peers.rank, layout.sent(end.peer, end.ring, peers.ranks));
    const SentState state = *stored;
    auto* const credit = in_scratch<uint32_t>(peers, peers.rank, layout.credit(end.peer, end.ring, peers.ranks));
    return {in_scratch<char>(peers, end.peer, layout.slot_data(peers.rank, end.ring)),
            in_scratch<uint64_t>(peers, end.peer, layout.flags(peers.rank, end.ring, peers.ranks)),
            credit,
            stored,
            state.sent,
            device::load_relaxed(credit),
            is_collective && state.division == division_of(end.slots, slot_bytes)};
  }
  // The next call waits for an empty ring. Then close() need not save the division.
  __device__ void forget_division() const {
    if (stored != nullptr) stored->division = 0;
  }
};
// The same for a receiving end.
struct ReceiverEnd {
  const char* slot_data;
  const uint64_t* flags;
  uint32_t* credit;
  uint32_t* stored_received;
  uint32_t received, credited;

  __device__ static ReceiverEnd of(const Peers& peers, const ChannelLayout& layout, End end) {
    if (end.peer < 0) return {};
    auto* const received = in_scratch<uint32_t>(peers, peers.rank, layout.received(end.peer, end.ring, peers.ranks));
    return {in_scratch<char>(peers, peers.rank, layout.slot_data(end.peer, end.ring)),
            in_scratch<uint64_t>(peers, peers.rank, layout.flags(end.peer, end.ring, peers.ranks)),
            in_scratch<uint32_t>(peers, end.peer, layout.credit(peers.rank, end.ring, peers.ranks)),
            received,
            *received,
            *received};
  }
};

// The whole warp calls every function. The CTA's signal warp raises the flags: they must follow a fence, which waits
// for all stores of the SM to peers, and one fence can serve many flags.
class SlotSender {
 public:
  // own: this thread's end; must outlive this object. slot_bytes: of a slot in this call: see ChannelLayout.
  // signals: number of signals that the warp has already pushed in this call.
  __device__ SlotSender(const Peers& peers, const ChannelLayout& layout, End end, SenderEnd& own, uint32_t slot_bytes,
                        SignalQueue& queue, int thread, uint32_t signals = 0)
      : peers_(peers),
        queue_(queue),
        own_(own),
        thread_(thread),
        peer_(end.peer),
        slot_bytes_(slot_bytes),
        slots_(end.slots),
        flag_mask_(layout.slots() - 1),
        signals_(signals) {}
  __device__ uint32_t signals() const { return signals_; }

  // Waits until each of these ends has a free slot; if an end is not open, until the peer has released all earlier
  // payloads. Returns false if the communicator is stopped.
  __device__ bool reserve(EndMask mask) {
    bool ready = true;
    const bool reserves = (mask >> thread_ & 1) != 0;
    const uint32_t need = own_.open ? own_.sent + 1 - slots_ : own_.sent;
    const bool must_poll = reserves && static_cast<int32_t>(own_.granted - need) < 0;
    if (deferred_ && __any_sync(device::all_lanes, must_poll))
      publish();  // else the peer might wait for these flags and release no slot
    if (must_poll) {
      ready = wait_until(peers_, peer_, [&] {
        own_.granted = device::load_acquire(own_.credit);
        return static_cast<int32_t>(own_.granted - need) >= 0;
      });
    }
    if (reserves) own_.open = true;
    return __all_sync(device::all_lanes, ready);
  }

  // Copies a payload from 16-byte aligned shared memory, which the warp has written, to the next slot of each of these
  // ends and requests their flags. reserve() must have been called for the ends. block, last: see SlotFlag. defer: see
  // raise(). Uses ordinary stores, so that the caller may overwrite the payload at once; bulk copies would not allow
  // that.
  __device__ void put(EndMask mask, const char* payload, PayloadSize size, uint32_t block, bool last,
                      bool defer = false) {
    __syncwarp();
    const auto own_slot =
        reinterpret_cast<unsigned long long>(own_.slot_data + (own_.sent & (slots_ - 1)) * slot_bytes_);
    // Begin after the own rank: if ends are ranks, the ranks do not all store to the same rank first.
    const EndMask after_own = ~((2u << peers_.rank) - 1);
    for (EndMask left = mask; left != 0;) {
      const int end = __ffs((left & after_own) != 0 ? left & after_own : left) - 1;
      left &= ~(1u << end);
      const auto of_end = __shfl_sync(device::all_lanes, own_slot, end);
      store(reinterpret_cast<char*>(of_end), payload, size.bytes());
    }
    raise(mask, size, block, last, defer);
  }

  // Requests the flags of these ends, for which reserve() must have been called. size: the payload's size, or
  // SlotFlag::written(). defer: publish the flags of every second call only, together with those of the call before, so
  // that two flags of a ring can be raised by one store. A call with defer must be followed by another one.
  __device__ void raise(EndMask mask, PayloadSize size, uint32_t block, bool last, bool defer = false) {
    if (mask >> thread_ & 1) {
      const uint32_t sent = ++own_.sent;
      queue_.push(signals_ + __popc(mask & ((1u << thread_) - 1)), own_.flags + ((sent - 1) & flag_mask_),
                  SlotFlag::of(sent, slot_bytes_ > ChannelLayout::slot_bytes, block, last, size));
    }
    __syncwarp();
    signals_ += __popc(mask);
    if (defer && !deferred_) {
      deferred_ = true;
    } else {
      publish();
    }
  }

  // Saves the state at the end of the call.
  __device__ void close(bool saves_division = true) {
    if (!own_.open) return;
    if (saves_division)
      *own_.stored = {own_.sent, division_of(slots_, slot_bytes_)};
    else
      own_.stored->sent = own_.sent;
  }

 private:
  // Issues several loads before the first store: the compiler does not move loads across stores.
  __device__ void store(char* to, const char* payload, uint32_t bytes) const {
    constexpr uint32_t ahead = 4, vectors = 32 * sizeof(uint4);
    const auto from = [&](uint32_t at) { return *reinterpret_cast<const uint4*>(payload + at); };
    const auto into = [&](uint32_t at) { return reinterpret_cast<uint4*>(to + at); };
    uint32_t at = thread_ * sizeof(uint4);
#pragma unroll 1
    for (; at + (ahead - 1) * vectors < bytes; at += ahead * vectors) {
      uint4 loaded[ahead];
#pragma unroll
      for (uint32_t i = 0; i < ahead; ++i) loaded[i] = from(at + i * vectors);
#pragma unroll
      for (uint32_t i = 0; i < ahead; ++i) *into(at + i * vectors) = loaded[i];
    }
#pragma unroll 1
    for (; at < bytes; at += vectors) *into(at) = from(at);
  }

  __device__ void publish() {
    deferred_ = false;
    if (thread_ == 0) queue_.publish(signals_);
  }

  const Peers& peers_;
  SignalQueue& queue_;
  SenderEnd& own_;
  int thread_, peer_;
  uint32_t slot_bytes_, slots_;
  uint32_t flag_mask_;  // flags cycle through all of the ring's flags, however large the slots are
  uint32_t signals_;
  bool deferred_ = false;  // the last flags have been pushed but not published
};

// The whole warp calls every function.
class SlotReceiver {
 public:
  // own: this thread's end; must outlive this object. slot_bytes: see SlotSender.
  __device__ SlotReceiver(const Peers& peers, const ChannelLayout& layout, End end, ReceiverEnd& own,
                          uint32_t slot_bytes, int thread)
      : peers_(peers),
        own_(own),
        thread_(thread),
        peer_(end.peer),
        slot_bytes_(slot_bytes),
        slots_(end.slots),
        flag_mask_(layout.slots() - 1) {}

  struct Payload {
    const char* data;
    SlotFlag flag;  // its payload size is 0 if there is no payload
    int end;
  };
  // Waits for the next payload of `end`. There is none if the communicator is stopped.
  __device__ Payload wait(int end) {
    SlotFlag seen{};
    if (thread_ == end && !wait_until(peers_, peer_, [&] { return is_raised(&seen); })) seen.word = 0;
    return payload(end, seen);
  }
  // Returns the next payload of `end` if it has already arrived.
  __device__ Payload poll(int end) {
    SlotFlag seen{};
    if (thread_ == end && !is_raised(&seen)) seen.word = 0;
    return payload(end, seen);
  }

  // Returns the next payload of any of these ends, at least one, searching from end `first` on. If `wait` is false,
  // only a payload that has already arrived.
  __device__ Payload next(EndMask ends, int first, bool wait) {
    SlotFlag seen{};
    const auto has_arrived = [&] { return is_raised(&seen); };
    const EndMask arrived = wait ? wait_until_any(peers_, peer_, ends, has_arrived)
                                 : __ballot_sync(device::all_lanes, (ends >> thread_ & 1) != 0 && has_arrived());
    if (arrived == 0) return {nullptr, {0}, 0};
    const EndMask from_first = arrived >> first << first;
    return payload(__ffs(from_first != 0 ? from_first : arrived) - 1, seen);
  }

  // Releases the slot of the current payload of `end`, which the warp must have read. Credit is returned for several
  // slots at a time.
  __device__ void release(int end) {
    if (thread_ != end) return;
    ++own_.received;
    if (own_.received - own_.credited >= slots_of_grant(slots_)) grant();
  }

  // Returns the remaining credit and saves the state at the end of the call.
  __device__ void close() {
    if (peer_ < 0) return;
    if (own_.credited != own_.received) grant();
    *own_.stored_received = own_.received;
  }

 private:
  __device__ bool is_raised(SlotFlag* seen) const {
    seen->word = device::load_acquire(own_.flags + (own_.received & flag_mask_));
    return seen->is_of(own_.received + 1);
  }
  __device__ Payload payload(int end, SlotFlag seen) const {
    const auto own_slot =
        reinterpret_cast<unsigned long long>(own_.slot_data + (own_.received & (slots_ - 1)) * slot_bytes_);
    return {reinterpret_cast<const char*>(__shfl_sync(device::all_lanes, own_slot, end)),
            {__shfl_sync(device::all_lanes, static_cast<unsigned long long>(seen.word), end)},
            end};
  }
  // A relaxed store is enough: all loads from the slots have completed, and the sender reads nothing written before
  // this.
  __device__ void grant() {
    own_.credited = own_.received;
    device::store_relaxed(own_.credit, own_.received);
  }

  const Peers& peers_;
  ReceiverEnd& own_;
  int thread_, peer_;
  uint32_t slot_bytes_, slots_;
  uint32_t flag_mask_;  // flags cycle through all of the ring's flags, however large the slots are
};

}  // namespace narrowcast::channel
