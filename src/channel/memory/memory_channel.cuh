// The two ends of memory channels in a kernel. A warp holds several ends at once, one in each of its threads: those of
// one ring's number towards several peers, or of several rings of one peer.
#pragma once

#include "channel/memory/memory_channel.h"
#include "channel/memory/signal_warp.cuh"
#include "channel/peer/bounded_wait.cuh"
#include "device/ptx/bulk_copy.cuh"
#include "device/warp.cuh"

namespace narrowcast::channel {

// Ends of a warp as bits.
using EndMask = uint32_t;

// Which end a thread holds, and how many slots of the ring the call uses, a power of two; peer -1: none.
struct End {
  int peer;
  uint32_t ring;
  uint32_t slots;
};

template <typename T>
__device__ T* in_scratch(const Peers& peers, int rank, size_t offset) {
  return reinterpret_cast<T*>(peers.scratch[rank] + offset);
}

// The sending end of a ring that a thread holds: where that lies, in its own scratch and in the peer's, and how far it
// has come. A kernel may keep it in shared memory, where it takes no registers.
struct SenderEnd {
  char* slot_data;
  uint64_t* flags;
  const uint32_t* credit;
  uint32_t* stored_sent;
  uint32_t sent, granted;
  bool used;  // in this call

  // At the begin of a call.
  __device__ static SenderEnd of(const Peers& peers, const ChannelLayout& layout, End end) {
    if (end.peer < 0) return {};
    auto* const sent = in_scratch<uint32_t>(peers, peers.rank, layout.sent(end.peer, end.ring, peers.ranks));
    return {in_scratch<char>(peers, end.peer, layout.slot_data(peers.rank, end.ring)),
            in_scratch<uint64_t>(peers, end.peer, layout.flags(peers.rank, end.ring, peers.ranks)),
            in_scratch<uint32_t>(peers, peers.rank, layout.credit(end.peer, end.ring, peers.ranks)),
            sent,
            *sent,
            0,
            false};
  }
};
// The same of the receiving end.
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

// The whole warp calls every function. Flags are raised by the CTA's signal warp: the fence that must come before them
// waits for everything that the SM has under way to peers, and one fence serves many flags.
class SlotSender {
 public:
  // own: this thread's end; outlives this. slot_bytes: of this call's payloads at most; a multiple of
  // ChannelLayout::slot_bytes. signals: that the warp has pushed in this call.
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

  // Waits until each of these ends has room for one payload; before the first of a call, until they have taken all that
  // went before. False: the communicator is stopped.
  __device__ bool reserve(EndMask mask) {
    bool ready = true;
    const uint32_t need = own_.used ? own_.sent + 1 - slots_ : own_.sent;
    const bool looks = (mask >> thread_ & 1) != 0 && (!own_.used || static_cast<int32_t>(own_.granted - need) < 0);
    if (held_ && __any_sync(device::all_lanes, looks)) publish();  // or the peer would wait for it, and grant nothing
    if (looks) {
      ready = wait_until(peers_, peer_, [&] {
        own_.granted = device::load_acquire(own_.credit);
        return static_cast<int32_t>(own_.granted - need) >= 0;
      });
      own_.used = true;
    }
    return __all_sync(device::all_lanes, ready);
  }

  // Puts `bytes` (a multiple of 16) from 16-byte aligned shared memory, which the warp has written, into the next slot
  // of each of these ends, for which reserve() was called, and has their flags raised. block, last: see SlotFlag;
  // holds: see raise(). By ordinary stores: the memory is free at once, as it is not with bulk copies.
  __device__ void put(EndMask mask, const char* payload, PayloadSize size, uint32_t block, bool last,
                      bool holds = false) {
    __syncwarp();
    const auto here = reinterpret_cast<unsigned long long>(own_.slot_data + (own_.sent & (slots_ - 1)) * slot_bytes_);
    const EndMask after_own = ~((2u << peers_.rank) - 1);  // where ends are ranks: no rank is everybody's first
    for (EndMask left = mask; left != 0;) {
      const int end = __ffs((left & after_own) != 0 ? left & after_own : left) - 1;
      left &= ~(1u << end);
      const auto of_end = __shfl_sync(device::all_lanes, here, end);
      store(reinterpret_cast<char*>(of_end), payload, size.bytes());
    }
    raise(mask, size, block, last, holds);
  }

  // Has the flags of these ends raised, for which reserve() was called. bytes: of the payload, or SlotFlag::written.
  // holds: every other time with those of the next time, which must come; flags of one ring then go to the peer by one
  // store.
  __device__ void raise(EndMask mask, PayloadSize size, uint32_t block, bool last, bool holds = false) {
    if (mask >> thread_ & 1) {
      const uint32_t sent = ++own_.sent;
      queue_.push(signals_ + __popc(mask & ((1u << thread_) - 1)), own_.flags + ((sent - 1) & flag_mask_),
                  SlotFlag::of(sent, block, last, size));
    }
    __syncwarp();
    signals_ += __popc(mask);
    if (holds && !held_) {
      held_ = true;
    } else {
      publish();
    }
  }

  // At the end of the call.
  __device__ void close() {
    if (own_.used) *own_.stored_sent = own_.sent;
  }

 private:
  // Several loads are under way before the first store, behind which the compiler would not move them.
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
    held_ = false;
    if (thread_ == 0) queue_.publish(signals_);
  }

  const Peers& peers_;
  SignalQueue& queue_;
  SenderEnd& own_;
  int thread_, peer_;
  uint32_t slot_bytes_, slots_;
  uint32_t flag_mask_;  // flags go round in all of them, however the slots are cut: none is left behind
  uint32_t signals_;
  bool held_ = false;  // the flags pushed last have not been published
};

// The whole warp calls every function.
class SlotReceiver {
 public:
  // own: this thread's end; outlives this. slot_bytes: see SlotSender.
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
    SlotFlag flag;  // of 0 bytes: there is none
    int end;
  };
  // Waits for the next payload of `end`. None: the communicator is stopped.
  __device__ Payload wait(int end) {
    SlotFlag seen{};
    if (thread_ == end && !wait_until(peers_, peer_, [&] { return is_raised(&seen); })) seen.word = 0;
    return payload(end, seen);
  }
  // The same if it is there already.
  __device__ Payload poll(int end) {
    SlotFlag seen{};
    if (thread_ == end && !is_raised(&seen)) seen.word = 0;
    return payload(end, seen);
  }

  // The next payload of any of these ends, which are not none: the first that has one, from `first` on. Without `wait`,
  // only if it is there already.
  __device__ Payload next(EndMask ends, int first, bool wait) {
    SlotFlag seen{};
    const auto is_here = [&] { return is_raised(&seen); };
    const EndMask here = wait ? wait_until_any(peers_, peer_, ends, is_here)
                              : __ballot_sync(device::all_lanes, (ends >> thread_ & 1) != 0 && is_here());
    if (here == 0) return {nullptr, {0}, 0};
    const EndMask from_first = here >> first << first;
    return payload(__ffs(from_first != 0 ? from_first : here) - 1, seen);
  }

  // The payload of `end` that was given has been read: its slot may be used again. Grants are sent for several slots at
  // a time.
  __device__ void release(int end) {
    if (thread_ != end) return;
    ++own_.received;
    if (own_.received - own_.credited >= slots_of_grant(slots_)) grant();
  }

  // At the end of the call.
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
    const auto here =
        reinterpret_cast<unsigned long long>(own_.slot_data + (own_.received & (slots_ - 1)) * slot_bytes_);
    return {reinterpret_cast<const char*>(__shfl_sync(device::all_lanes, here, end)),
            {__shfl_sync(device::all_lanes, static_cast<unsigned long long>(seen.word), end)},
            end};
  }
  // Relaxed: what was read has arrived, and nothing was written that the sender reads.
  __device__ void grant() {
    own_.credited = own_.received;
    device::store_relaxed(own_.credit, own_.received);
  }

  const Peers& peers_;
  ReceiverEnd& own_;
  int thread_, peer_;
  uint32_t slot_bytes_, slots_;
  uint32_t flag_mask_;  // flags go round in all of them, however the slots are cut: none is left behind
};

}  // namespace narrowcast::channel
