// The sending and receiving ends of a memory channel's ring for kernels without a signal warp: a warp holds one end and
// raises its flags itself. Messages use the rings, flags and counts of memory_channel.h.
//
// The whole warp calls every function, with the same arguments. A function that returns false found the communicator
// stopped, or reported a failure and stopped it: the kernel must end without waiting again.
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

// Shared memory of a warp that encodes or decodes blocks.
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

// Sending end of a ring. Only one warp at a time may hold it, and one warp of `peer` the receiving end.
class Sender {
 public:
  // channels: must outlive this object; preferably a __grid_constant__ parameter. peer: 0 to ranks - 1. ring: 0 to
  // rings - 1.
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
    granted_ = sent_ - slots_;  // not known yet: the first message loads the credit
  }
  // Announces pending messages and saves the ring's state for the next kernel.
  __device__ ~Sender() {
    announce();
    if (thread_ == 0) *stored_sent_ = sent_;
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Writes the next message: `bytes` bytes, at most slot_bytes. from: shared or global memory of any alignment, fastest
  // if 16-byte aligned; it may be overwritten at once. If there is no room, announces pending messages and waits.
  __device__ bool put(const void* from, uint32_t bytes) { return put(from, bytes, false); }

  // Like put(), but encodes the values if they are a block of Codec::values_bytes bytes; fewer bytes are sent
  // unchanged. from: as for put(), or memory.values. slot_bytes must be at least Codec::values_bytes. codec:
  // parameters, for codecs that have any. context: for codecs that use it. Returns the message's size in bytes, or 0 if
  // stopped.
  template <device::BlockCodec Codec>
  __device__ uint32_t put_encoded(const void* from, uint32_t bytes, BlockMemory<Codec>& memory, ncast_codec codec = {},
                                  const device::BlockContext& context = {}) {
    if (bytes != Codec::values_bytes) return put(from, bytes) ? bytes : 0;
    __syncwarp();  // all threads have finished with the previous block in `memory`
    if (from != memory.values) device::copy_by_warp(memory.values, from, bytes, thread_);
    __syncwarp();
    const uint32_t size = device::encode_block<Codec>(device::parameters_of<Codec>(codec), context, memory.values,
                                                      memory.payload, memory.scratch, thread_);
    const bool coded = size != Codec::values_bytes;
    return put(coded ? memory.payload : memory.values, size, coded) ? size : 0;
  }

  // Writes `bytes` bytes directly to the peer's memory, at an address from ncast_mem_peer. They are visible to the peer
  // after it receives a message that is announced later.
  __device__ void put_direct(void* to, const void* from, uint32_t bytes) {
    __syncwarp();
    if (__any_sync(device::all_lanes, stopped_ != 0)) return;
    device::copy_by_warp(to, from, bytes, thread_);
    __syncwarp();
  }

  // Announces the messages written since the last signal. If there are none, sends a message of 0 bytes, which the peer
  // must receive and release; it then sees everything written before.
  __device__ bool signal() {
    if (pending_ == 0) {
      if (!reserve()) return false;
      append(0, false);
    }
    announce();
    return true;
  }

  // Announces pending messages and waits until the peer has released all messages.
  __device__ bool flush() {
    announce();
    return wait_for_grant(sent_);
  }

 private:
  __device__ bool put(const void* from, uint32_t bytes, bool coded) {
    if (!reserve()) return false;
    device::copy_by_warp(slot_data_ + sent_ % slots_ * slot_bytes_, from, bytes, thread_);
    __syncwarp();  // all threads have read `from`
    append(bytes, coded);
    return true;
  }
  __device__ bool reserve() {
    if (sent_ - granted_ >= slots_) {
      announce();  // else the peer might wait for these messages and never make room
      if (!wait_for_grant(sent_ + 1 - slots_)) return false;
    }
    __syncwarp();  // makes the other threads' writes to shared memory visible
    return true;
  }

  // Waits until the peer has released the messages before number `need`.
  __device__ bool wait_for_grant(uint32_t need) {
    return channel::wait_for_grant(peers_, peer_, credit_, need, stopped_, thread_, granted_);
  }

  // Thread n keeps the flag of the n-th message that is not announced. The flag's block field holds the message's size,
  // which need not be a multiple of 16.
  __device__ void append(uint32_t bytes, bool coded) {
    if (thread_ == static_cast<int>(pending_))
      word_ =
          SlotFlag::of(sent_ + 1, slot_bytes_ > ChannelLayout::slot_bytes, bytes, true, PayloadSize::of(0, coded)).word;
    ++pending_;
    ++sent_;
  }
  __device__ void announce() {
    __syncwarp();
    if (thread_ < static_cast<int>(pending_)) {
      device::fence_system();  // orders the warp's messages before their flags
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
  uint32_t stopped_;         // the stop word when the kernel began; that of thread 0 decides for the warp
  uint32_t sent_, granted_;  // messages written; messages known to be released by the peer
  uint32_t pending_ = 0;     // the number of messages written but not announced
  uint64_t word_ = 0;
};

// Receiving end of a ring.
class Receiver {
 public:
  // The arguments are those of Sender.
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
  // The next kernel receives the messages that were not released.
  __device__ ~Receiver() {
    if (thread_ == 0) *stored_received_ = received_;
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Waits for the next message. data() and bytes() then describe it, and everything that the peer wrote before it is
  // visible.
  __device__ bool wait() { return find_next(true); }
  // Whether the next message has arrived. If so, the same as wait().
  __device__ bool poll() { return find_next(false); }

  // Data of the message that wait() or poll() found: 16-byte aligned, readable until release().
  __device__ const void* data() const { return slot_data_ + received_ % slots_ * slot_bytes_; }
  __device__ uint32_t bytes() const { return bytes_; }

  // Releases the message that wait() or poll() found. The warp must also have finished reading from the peer's memory.
  __device__ void release() {
    __syncwarp();
    ++received_;
    if (thread_ == 0) device::store_release(credit_, received_);
  }

  // Waits for the next message, copies it to `to` and releases it. It is an error if the message does not have `bytes`
  // bytes. to: shared or global memory of any alignment; afterwards all threads of the warp may read it.
  __device__ bool get(void* to, uint32_t bytes) {
    if (!wait()) return false;
    if (bytes_ != bytes) return report_corrupt();
    device::copy_by_warp(to, data(), bytes, thread_);
    release_relaxed();
    return true;
  }

  // Waits for the next message, does into[i] = combine(into[i], values[i]) for each of its values, and releases it. It
  // is an error if the message does not have `count` values. into: shared or global memory, aligned to its type,
  // fastest if 16-byte aligned; afterwards all threads of the warp may read it. The accumulator may be wider than the
  // values: for example Value = __nv_bfloat16 with a float* into.
  template <typename Value, typename Accumulator, typename Combine>
  __device__ bool get_reduced(Accumulator* into, uint32_t count, Combine combine) {
    if (!wait()) return false;
    if (bytes_ != count * sizeof(Value)) return report_corrupt();
    __syncwarp();
    device::reduce_by_warp(into, static_cast<const Value*>(data()), count, thread_, combine);
    release_relaxed();
    return true;
  }

  // Like get(), for a message that put_encoded() sent with the same `bytes`: decodes it. to: as for get(), or
  // memory.values.
  template <device::BlockCodec Codec>
  __device__ bool get_decoded(void* to, uint32_t bytes, BlockMemory<Codec>& memory, ncast_codec codec = {}) {
    const void* const values = next_values(bytes, memory, codec);
    if (values == nullptr) return false;
    if (values != to) device::copy_by_warp(to, values, bytes, thread_);
    finish_values(values);
    return true;
  }

  // Like get_reduced(), for a message of `count` values that put_encoded() sent.
  template <typename Value, device::BlockCodec Codec, typename Accumulator, typename Combine>
  __device__ bool get_decoded_reduced(Accumulator* into, uint32_t count, BlockMemory<Codec>& memory, Combine combine,
                                      ncast_codec codec = {}) {
    const void* const values = next_values(static_cast<uint32_t>(count * sizeof(Value)), memory, codec);
    if (values == nullptr) return false;
    __syncwarp();
    device::reduce_by_warp(into, static_cast<const Value*>(values), count, thread_, combine);
    finish_values(values);
    return true;
  }

  // Reads `bytes` bytes directly from the peer's memory, at an address from ncast_mem_peer. The peer must have written
  // them before it announced a message that this warp has received. `from` must not derive from a const __restrict__
  // pointer.
  __device__ void get_direct(void* to, const void* from, uint32_t bytes) {
    __syncwarp();
    if (__any_sync(device::all_lanes, stopped_ != 0)) return;
    device::copy_by_warp(to, from, bytes, thread_);
    __syncwarp();
  }

 private:
  // Thread 0 loads the flag with acquire order. The warp barriers extend this order to the other threads' reads.
  __device__ bool find_next(bool waits) {
    SlotFlag seen{};
    bool arrived = false;
    if (thread_ == 0 && stopped_ == 0) {
      const auto is_raised = [&] {
        seen.word = device::load_acquire(flags_ + received_ % slots_);
        return seen.is_of(received_ + 1);
      };
      arrived = waits ? wait_until(peers_, peer_, is_raised) : is_raised();
    }
    arrived = __shfl_sync(device::all_lanes, arrived, 0);
    bytes_ = __shfl_sync(device::all_lanes, seen.block(), 0);
    coded_ = __shfl_sync(device::all_lanes, seen.payload().is_coded(), 0);
    __syncwarp();
    return !arrived || bytes_ <= slot_bytes_ ? arrived : report_corrupt();
  }
  // Waits for the next message from put_encoded() and returns its values: in the slot if they are raw, otherwise
  // decoded in memory.values with the slot already released. NULL: stopped.
  template <device::BlockCodec Codec>
  __device__ const void* next_values(uint32_t bytes, BlockMemory<Codec>& memory, ncast_codec codec) {
    if (!wait()) return nullptr;
    const uint32_t size = bytes_;
    if (!coded_ && size == bytes) return data();
    bool good = coded_ && bytes == Codec::values_bytes && size != 0 && size % 16 == 0 && size <= bytes;
    if (good) {
      device::copy_by_warp(memory.payload, data(), size, thread_);
      release_relaxed();
      good = device::decode_block<Codec>(device::parameters_of<Codec>(codec), memory.payload, size, memory.values,
                                         memory.scratch, thread_);
    }
    if (!good) report_corrupt();
    __syncwarp();
    return good ? memory.values : nullptr;
  }
  // The warp has read the result of next_values().
  __device__ void finish_values(const void* values) {
    if (values == data()) {
      release_relaxed();
    } else {
      __syncwarp();
    }
  }
  // Like release(). A relaxed store is enough, because the data has been loaded and stored elsewhere, and the peer
  // reads nothing that was written before this.
  __device__ void release_relaxed() {
    __syncwarp();
    ++received_;
    if (thread_ == 0) device::store_relaxed(credit_, received_);
  }
  __device__ bool report_corrupt() {
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
  uint32_t stopped_;  // as in Sender
  uint32_t received_;
  uint32_t bytes_ = 0;
  bool coded_ = false;
};

}  // namespace narrowcast::channel
