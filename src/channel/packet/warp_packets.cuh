// Short messages by packets, for users' kernels. Data and flag are written by one store, so that a message has the
// latency of one store and needs no fence. The ends of a packet ring (packet_rings.h) are independent of the ends of
// the message ring of the same number (warp_channel.cuh).
//
// The whole warp calls every function, with the same arguments. A function that returns false found the communicator
// stopped, or reported a failure and stopped it: the kernel must end without waiting again.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "../memory/kernel_channels.h"
#include "../memory/warp_grant.cuh"
#include "../peer/bounded_wait.cuh"
#include "packet_rings.h"

namespace narrowcast::channel {

namespace packet_words {

// Load and store the 4 bytes at an address of any alignment, without those at or after `end`.
__device__ __forceinline__ uint32_t load(const char* from, const char* end) {
  if (reinterpret_cast<uintptr_t>(from) % 4 == 0 && end - from >= 4) return *reinterpret_cast<const uint32_t*>(from);
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i)
    if (from + i < end) word |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << 8 * i;
  return word;
}
__device__ __forceinline__ void store(char* to, const char* end, uint32_t word) {
  if (reinterpret_cast<uintptr_t>(to) % 4 == 0 && end - to >= 4) {
    *reinterpret_cast<uint32_t*>(to) = word;
    return;
  }
  for (int i = 0; i < 4; ++i)
    if (to + i < end) to[i] = static_cast<char>(word >> 8 * i);
}

}  // namespace packet_words

// The part that both ends share.
class PacketEnd {
 protected:
  __device__ PacketEnd(const ncast_channels& channels, int peer)
      : kernel_(*reinterpret_cast<const KernelChannels*>(channels.reserved)),
        rings_(kernel_.layout, channels.ranks),
        peer_(peer),
        thread_(device::lane_id()),
        stopped_(stop_word(kernel_.peers)) {}

  template <typename T>
  __device__ T* at(int rank, size_t offset) const {
    return reinterpret_cast<T*>(kernel_.peers.scratch[rank] + offset);
  }
  __device__ static uint32_t slot_of(uint32_t use) { return use % PacketRings::slots * PacketRings::slot_bytes; }
  __device__ bool is_wide() const { return kernel_.packet_bytes == wide_packets.bytes; }
  // Number of packets of a message. A message of 0 bytes has one packet.
  __device__ uint32_t packets_of(uint32_t bytes) const {
    const uint32_t data_bytes = kernel_.packet_bytes - static_cast<uint32_t>(sizeof(uint32_t));
    return bytes == 0 ? 1 : (bytes + data_bytes - 1) / data_bytes;
  }

  const KernelChannels& kernel_;
  PacketRings rings_;
  int peer_, thread_;
  uint32_t stopped_;  // the stop word when the kernel began
};

// Sending end of a packet ring. Only one warp at a time may hold it, and one warp of `peer` the receiving end.
class PacketSender : PacketEnd {
 public:
  // The arguments are those of Sender.
  __device__ PacketSender(const ncast_channels& channels, int peer, uint32_t ring) : PacketEnd(channels, peer) {
    const int rank = kernel_.peers.rank;
    slot_data_ = at<char>(peer, rings_.slot_data(rank, ring));
    credit_ = at<uint32_t>(rank, rings_.credit(peer, ring));
    stored_sent_ = at<uint32_t>(rank, rings_.sent(peer, ring));
    sent_ = *stored_sent_;
    granted_ = sent_ - PacketRings::slots;  // not known yet: the first message loads the credit
  }
  __device__ ~PacketSender() {
    if (thread_ == 0) *stored_sent_ = sent_;
  }
  PacketSender(const PacketSender&) = delete;
  PacketSender& operator=(const PacketSender&) = delete;

  // Sends a message of `bytes` bytes, at most NCAST_PACKET_MESSAGE_BYTES. No signal is needed. from: shared or global
  // memory of any alignment, fastest if 4-byte aligned; it may be overwritten at once. Waits for room: a ring holds
  // PacketRings::slots messages.
  __device__ bool put(const void* from, uint32_t bytes) {
    if (sent_ - granted_ >= PacketRings::slots && !wait_for_grant(sent_ + 1 - PacketRings::slots)) return false;
    __syncwarp();  // makes the other threads' writes visible
    const auto* const begin = static_cast<const char*>(from);
    const char* const end = begin + bytes;
    const uint32_t flag = PacketFlag::of(sent_, bytes), packets = packets_of(bytes);
    char* const to = slot_data_ + slot_of(sent_);
    if (is_wide()) {
      for (uint32_t packet = thread_; packet < packets; packet += 32) {
        const char* const data = begin + packet * wide_packets.data_bytes();
        device::store_16_bytes_relaxed(to + packet * wide_packets.bytes,
                                       {packet_words::load(data, end), packet_words::load(data + 4, end),
                                        packet_words::load(data + 8, end), flag});
      }
    } else {
      for (uint32_t packet = thread_; packet < packets; packet += 32) {
        const uint32_t word = packet_words::load(begin + packet * narrow_packets.data_bytes(), end);
        device::store_relaxed(reinterpret_cast<uint64_t*>(to) + packet, uint64_t{flag} << 32 | word);
      }
    }
    ++sent_;
    __syncwarp();  // all threads have read `from`
    return true;
  }

  // Waits until the peer has received all messages.
  __device__ bool flush() { return wait_for_grant(sent_); }

 private:
  // Waits until the peer has received the messages before number `need` and cleared their packets.
  __device__ bool wait_for_grant(uint32_t need) {
    return channel::wait_for_grant(kernel_.peers, peer_, credit_, need, stopped_, thread_, granted_);
  }

  char* slot_data_;
  const uint32_t* credit_;
  uint32_t* stored_sent_;
  uint32_t sent_, granted_;  // messages sent; messages known to be received by the peer
};

// Receiving end of a packet ring.
class PacketReceiver : PacketEnd {
 public:
  __device__ PacketReceiver(const ncast_channels& channels, int peer, uint32_t ring) : PacketEnd(channels, peer) {
    const int rank = kernel_.peers.rank;
    slot_data_ = at<char>(rank, rings_.slot_data(peer, ring));
    credit_ = at<uint32_t>(peer, rings_.credit(rank, ring));
    stored_received_ = at<uint32_t>(rank, rings_.received(peer, ring));
    received_ = *stored_received_;
  }
  __device__ ~PacketReceiver() {
    if (thread_ == 0) *stored_received_ = received_;
  }
  PacketReceiver(const PacketReceiver&) = delete;
  PacketReceiver& operator=(const PacketReceiver&) = delete;

  // Whether the first packet of the next message has arrived.
  __device__ bool poll() const {
    const bool has_arrived = thread_ == 0 && stopped_ == 0 && PacketFlag::is_of(flag_of(0), received_);
    return __any_sync(device::all_lanes, has_arrived);
  }

  // Waits for the next message, copies it to `to` and releases its slot. It is an error if the message does not have
  // `bytes` bytes. to: shared or global memory of any alignment; afterwards all threads of the warp may read it.
  __device__ bool get(void* to, uint32_t bytes) {
    auto* const begin = static_cast<char*>(to);
    char* const end = begin + bytes;
    const uint32_t packets = packets_of(bytes);
    bool arrived = true;
    for (uint32_t packet = thread_; packet < packets; packet += 32) {
      uint4 seen = {};
      arrived = stopped_ == 0 && wait_until(kernel_.peers, peer_, [&] {
                  seen = load(packet);
                  return PacketFlag::is_of(seen.w, received_);
                });
      if (arrived && PacketFlag::bytes(seen.w) != bytes) {
        // Stop at once, because other threads may be waiting for packets that will not come.
        stop_kernels(kernel_.peers, peer_, payload_corrupt);
        arrived = false;
      }
      if (!arrived) break;
      clear(packet);
      char* const data = begin + packet * (kernel_.packet_bytes - static_cast<uint32_t>(sizeof(uint32_t)));
      packet_words::store(data, end, seen.x);
      if (is_wide()) {
        packet_words::store(data + 4, end, seen.y);
        packet_words::store(data + 8, end, seen.z);
      }
    }
    if (!__all_sync(device::all_lanes, arrived)) return false;
    __syncwarp();
    ++received_;
    // Release: orders the clearing before the next packets in this slot.
    if (thread_ == 0) device::store_release(credit_, received_);
    return true;
  }

 private:
  // Returns the flag in w and the data in the words before it.
  __device__ uint4 load(uint32_t packet) const {
    const char* const from = slot_data_ + slot_of(received_) + packet * kernel_.packet_bytes;
    if (is_wide()) return device::load_16_bytes_relaxed(from);
    const uint64_t both = device::load_relaxed(reinterpret_cast<const uint64_t*>(from));
    return {static_cast<uint32_t>(both), 0, 0, static_cast<uint32_t>(both >> 32)};
  }
  __device__ uint32_t flag_of(uint32_t packet) const { return load(packet).w; }
  __device__ void clear(uint32_t packet) const {
    char* const flag = slot_data_ + slot_of(received_) + (packet + 1) * kernel_.packet_bytes - sizeof(uint32_t);
    device::store_relaxed(reinterpret_cast<uint32_t*>(flag), 0);
  }

  char* slot_data_;
  uint32_t* credit_;
  uint32_t* stored_received_;
  uint32_t received_;
};

}  // namespace narrowcast::channel
