// The two ends of a memory channel's ring for kernels that have no signal warp: a warp holds one end and raises its
// flags itself. Messages use the rings, flags and counts of memory_channel.h.
//
// The whole warp calls every function, with the same arguments. False means that the communicator is stopped, here or
// by a failure that the function has reported: the kernel ends without waiting again.
#pragma once

#include <cstdint>

#include "../../device/block_codec.cuh"
#include "../../device/copy.cuh"
#include "../../device/reduce.cuh"
#include "../../device/warp.cuh"
#include "../peer/bounded_wait.cuh"
#include "kernel_channels.h"
#include "warp_grant.cuh"

namespace narrowcast::channel {

// Shared memory of a warp that codes blocks.
template <device::BlockCodec Codec>
struct alignas(128) BlockMemory {
  char values[Codec::values_bytes];
  char payload[Codec::values_bytes];
  typename Codec::Scratch scratch;
};

namespace warp_channel {

__device__ inline const KernelChannels& of(const ncast_channels& channels) {
  return *reinterpret_cast<const KernelChannels*>(channels.reserved);
}
template <typename T>
__device__ T* at(const Peers& peers, int rank, size_t offset) {
  return reinterpret_cast<T*>(peers.scratch[rank] + offset);
}

}  // namespace warp_channel

// One warp at a time holds the sending end of a ring, and one of `peer` the receiving end.
class Sender {
 public:
  // channels: outlives this; a __grid_constant__ parameter is best. peer: 0 to ranks - 1. ring: 0 to rings - 1.
  __device__ Sender(const ncast_channels& channels, int peer, uint32_t ring)
      : peers_(warp_channel::of(channels).peers),
        peer_(peer),
        thread_(device::lane_id()),
        slot_bytes_(channels.slot_bytes),
        slots_(ring_bytes / channels.slot_bytes) {
    const ChannelLayout& layout = warp_channel::of(channels).layout;
    slot_data_ = warp_channel::at<char>(peers_, peer, layout.slot_data(peers_.rank, ring));
    flags_ = warp_channel::at<uint64_t>(peers_, peer, layout.flags(peers_.rank, ring, peers_.ranks));
    credit_ = warp_channel::at<uint32_t>(peers_, peers_.rank, layout.credit(peer, ring, peers_.ranks));
    stored_sent_ = warp_channel::at<uint32_t>(peers_, peers_.rank, layout.sent(peer, ring, peers_.ranks));
    stopped_ = stop_word(peers_);
    sent_ = *stored_sent_;
    granted_ = sent_ - slots_;  // not known yet: the first message looks
  }
  // Announces what was put, and leaves the ring to the next kernel.
  __device__ ~Sender() {
    announce();
    if (thread_ == 0) *stored_sent_ = sent_;
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Puts `bytes`, at most slot_bytes, into the next message. from: shared or global memory of any alignment, 16 being
  // fastest; it may be written again at once. Waits for room, and before that announces what was put.
  __device__ bool put(const void* from, uint32_t bytes) { return put(from, bytes, false); }

  // As put(), the values encoded: a block of Codec::values_bytes, or fewer bytes, which travel as they are. from: as
  // above, or memory.values. slot_bytes is at least Codec::values_bytes. codec: the parameters of a codec that has
  // some. Returns the message's bytes; 0: stopped.
  template <device::BlockCodec Codec>
  __device__ uint32_t put_encoded(const void* from, uint32_t bytes, BlockMemory<Codec>& memory,
                                  ncast_codec codec = {}) {
    if (bytes != Codec::values_bytes) return put(from, bytes) ? bytes : 0;
    __syncwarp();  // nobody reads the memory's last block any more
    if (from != memory.values) device::copy_by_warp(memory.values, from, bytes, thread_);
    __syncwarp();
    const uint32_t size = device::encode_block<Codec>(codec, memory.values, memory.payload, memory.scratch, thread_);
    const bool coded = size != Codec::values_bytes;
    return put(coded ? memory.payload : memory.values, size, coded) ? size : 0;
  }

  // Puts `bytes` straight into memory of the peer, at an address that ncast_mem_peer gave. The peer sees them when it
  // has seen a message that was announced after this.
  __device__ void put_direct(void* to, const void* from, uint32_t bytes) {
    __syncwarp();
    if (__any_sync(device::all_lanes, stopped_ != 0)) return;
    device::copy_by_warp(to, from, bytes, thread_);
    __syncwarp();
  }

  // Announces the messages that were put since the last signal. If there are none, sends one of 0 bytes, which says
  // that all before it is there; the peer waits for it and releases it.
  __device__ bool signal() {
    if (pending_ == 0) {
      if (!reserve()) return false;
      append(0, false);
    }
    announce();
    return true;
  }

  // Announces what was put and waits until the peer has released every message.
  __device__ bool flush() {
    announce();
    return wait_for_grant(sent_);
  }

 private:
  __device__ bool put(const void* from, uint32_t bytes, bool coded) {
    if (!reserve()) return false;
    device::copy_by_warp(slot_data_ + sent_ % slots_ * slot_bytes_, from, bytes, thread_);
    __syncwarp();  // all have read
    append(bytes, coded);
    return true;
  }
  __device__ bool reserve() {
    if (sent_ - granted_ >= slots_) {
      announce();  // or the peer might wait for it, and never make room
      if (!wait_for_grant(sent_ + 1 - slots_)) return false;
    }
    __syncwarp();  // what the other threads wrote to shared memory is there to copy
    return true;
  }

  // Until the peer has released the messages below number `need`.
  __device__ bool wait_for_grant(uint32_t need) {
    return channel::wait_for_grant(peers_, peer_, credit_, need, stopped_, thread_, granted_);
  }

  // The n-th message that is not announced has its flag in the n-th thread.
  // Its bytes, which need not be a multiple of 16, stand in place of a block's number.
  __device__ void append(uint32_t bytes, bool coded) {
    if (thread_ == static_cast<int>(pending_))
      word_ = SlotFlag::of(sent_ + 1, bytes, true, PayloadSize::of(0, coded)).word;
    ++pending_;
    ++sent_;
  }
  __device__ void announce() {
    __syncwarp();
    if (thread_ < static_cast<int>(pending_)) {
      device::fence_system();  // what the warp has put comes before its flags
      device::store_relaxed(flags_ + (sent_ - pending_ + static_cast<uint32_t>(thread_)) % slots_, word_);
    }
    pending_ = 0;
  }

  const Peers& peers_;
  int peer_, thread_;
  uint32_t slot_bytes_, slots_;
  char* slot_data_;
  uint64_t* flags_;
  const uint32_t* credit_;
  uint32_t* stored_sent_;
  uint32_t stopped_;         // the stop word when the kernel began; thread 0's decides for the warp
  uint32_t sent_, granted_;  // messages put; messages that the peer was seen to have released
  uint32_t pending_ = 0;     // of those put, the last so many are not announced
  uint64_t word_ = 0;
};

class Receiver {
 public:
  // As Sender's.
  __device__ Receiver(const ncast_channels& channels, int peer, uint32_t ring)
      : peers_(warp_channel::of(channels).peers),
        peer_(peer),
        thread_(device::lane_id()),
        slot_bytes_(channels.slot_bytes),
        slots_(ring_bytes / channels.slot_bytes) {
    const ChannelLayout& layout = warp_channel::of(channels).layout;
    slot_data_ = warp_channel::at<char>(peers_, peers_.rank, layout.slot_data(peer, ring));
    flags_ = warp_channel::at<uint64_t>(peers_, peers_.rank, layout.flags(peer, ring, peers_.ranks));
    credit_ = warp_channel::at<uint32_t>(peers_, peer, layout.credit(peers_.rank, ring, peers_.ranks));
    stored_received_ = warp_channel::at<uint32_t>(peers_, peers_.rank, layout.received(peer, ring, peers_.ranks));
    stopped_ = stop_word(peers_);
    received_ = *stored_received_;
  }
  // Messages that came and were not released are left to the next kernel.
  __device__ ~Receiver() {
    if (thread_ == 0) *stored_received_ = received_;
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Waits for the next message; data() and bytes() are then its own, and so is what the peer put directly before it.
  __device__ bool wait() { return look(true); }
  // Whether it is there already.
  __device__ bool poll() { return look(false); }

  // Of the message that wait() or poll() found: 16-byte aligned, for this warp to read until it is released.
  __device__ const void* data() const { return slot_data_ + received_ % slots_ * slot_bytes_; }
  __device__ uint32_t bytes() const { return bytes_; }

  // The message that wait() or poll() found is done with, and so is what the warp has read of the peer's memory.
  __device__ void release() {
    __syncwarp();
    ++received_;
    if (thread_ == 0) device::store_release(credit_, received_);
  }

  // Waits for the next message, which has to have `bytes`, copies it and releases it. to: shared or global memory of
  // any alignment; the warp's threads may read all of it.
  __device__ bool get(void* to, uint32_t bytes) {
    if (!wait()) return false;
    if (bytes_ != bytes) return refuse();
    device::copy_by_warp(to, data(), bytes, thread_);
    release_arrived();
    return true;
  }

  // Waits for the next message, which has to have `count` values, does into[i] = combine(into[i], values[i]) for each,
  // and releases it. into: shared or global memory, as aligned as its type, 16 bytes being fastest; the warp's threads
  // may read all of it. Sums of many messages in a wider type than theirs are Value = __nv_bfloat16 with float* into.
  template <typename Value, typename Accumulator, typename Combine>
  __device__ bool get_reduced(Accumulator* into, uint32_t count, Combine combine) {
    if (!wait()) return false;
    if (bytes_ != count * sizeof(Value)) return refuse();
    __syncwarp();
    device::reduce_by_warp(into, static_cast<const Value*>(data()), count, thread_, combine);
    release_arrived();
    return true;
  }

  // The values of a message that put_encoded() sent with the same `bytes`. to: shared or global memory of any
  // alignment, or memory.values; the warp's threads may read all of it.
  template <device::BlockCodec Codec>
  __device__ bool get_decoded(void* to, uint32_t bytes, BlockMemory<Codec>& memory, ncast_codec codec = {}) {
    const void* const values = next_values(bytes, memory, codec);
    if (values == nullptr) return false;
    if (values != to) device::copy_by_warp(to, values, bytes, thread_);
    done_with(values);
    return true;
  }

  // The same, reduced as by get_reduced(): `count` values of what put_encoded() sent.
  template <typename Value, device::BlockCodec Codec, typename Accumulator, typename Combine>
  __device__ bool get_decoded_reduced(Accumulator* into, uint32_t count, BlockMemory<Codec>& memory, Combine combine,
                                      ncast_codec codec = {}) {
    const void* const values = next_values(static_cast<uint32_t>(count * sizeof(Value)), memory, codec);
    if (values == nullptr) return false;
    __syncwarp();
    device::reduce_by_warp(into, static_cast<const Value*>(values), count, thread_, combine);
    done_with(values);
    return true;
  }

  // Gets `bytes` straight from memory of the peer, at an address that ncast_mem_peer gave; the peer wrote them before
  // it announced a message that this warp has seen. Not through a pointer that is const __restrict__ in the kernel.
  __device__ void get_direct(void* to, const void* from, uint32_t bytes) {
    __syncwarp();
    if (__any_sync(device::all_lanes, stopped_ != 0)) return;
    device::copy_by_warp(to, from, bytes, thread_);
    __syncwarp();
  }

 private:
  // One thread's acquire, handed on by the barriers, orders what the peer wrote before what the warp reads.
  __device__ bool look(bool waits) {
    SlotFlag seen{};
    bool here = false;
    if (thread_ == 0 && stopped_ == 0) {
      const auto is_raised = [&] {
        seen.word = device::load_acquire(flags_ + received_ % slots_);
        return seen.is_of(received_ + 1);
      };
      here = waits ? wait_until(peers_, peer_, is_raised) : is_raised();
    }
    here = __shfl_sync(device::all_lanes, here, 0);
    bytes_ = __shfl_sync(device::all_lanes, seen.block(), 0);
    coded_ = __shfl_sync(device::all_lanes, seen.payload().is_coded(), 0);
    __syncwarp();
    return !here || bytes_ <= slot_bytes_ ? here : refuse();
  }
  // Where the values are of the next message, which put_encoded() sent with so many bytes: in its slot, or decoded in
  // memory.values, the slot released. NULL: stopped.
  template <device::BlockCodec Codec>
  __device__ const void* next_values(uint32_t bytes, BlockMemory<Codec>& memory, ncast_codec codec) {
    if (!wait()) return nullptr;
    const uint32_t size = bytes_;
    if (!coded_ && size == bytes) return data();
    bool good = coded_ && bytes == Codec::values_bytes && size != 0 && size % 16 == 0 && size <= bytes;
    if (good) {
      device::copy_by_warp(memory.payload, data(), size, thread_);
      release_arrived();
      good = device::decode_block<Codec>(codec, memory.payload, size, memory.values, memory.scratch, thread_);
    }
    if (!good) refuse();
    __syncwarp();
    return good ? memory.values : nullptr;
  }
  // What next_values() gave has been read.
  __device__ void done_with(const void* values) {
    if (values == data()) {
      release_arrived();
    } else {
      __syncwarp();
    }
  }
  // Relaxed: what was read has arrived, as it has been written elsewhere, and nothing was written that the peer reads.
  __device__ void release_arrived() {
    __syncwarp();
    ++received_;
    if (thread_ == 0) device::store_relaxed(credit_, received_);
  }
  __device__ bool refuse() {
    if (thread_ == 0) stop_kernels(peers_, peer_, payload_corrupt);
    __syncwarp();
    return false;
  }

  const Peers& peers_;
  int peer_, thread_;
  uint32_t slot_bytes_, slots_;
  const char* slot_data_;
  const uint64_t* flags_;
  uint32_t* credit_;
  uint32_t* stored_received_;
  uint32_t stopped_;  // as Sender's
  uint32_t received_;
  uint32_t bytes_ = 0;
  bool coded_ = false;
};

}  // namespace narrowcast::channel
