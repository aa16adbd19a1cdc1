// The ends of rings in threads instead of kernels: they fill and empty slots as SlotSender and SlotReceiver
// (memory_channel.cuh) do.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "channel/memory/memory_channel.h"
#include "channel/network/forwarder.h"

namespace narrowcast::testing {

// Where a ring is: in the scratch of this rank and in that of the peer, or its mirror.
struct RingPlace {
  char* own;
  char* other;
  const channel::ChannelLayout& layout;
  int rank, peer, ranks;
  uint32_t ring, slot_bytes;

  uint32_t slots() const { return layout.slots_of(slot_bytes); }
  template <typename T>
  static std::atomic_ref<T> word(char* memory, size_t offset, size_t index = 0) {
    return std::atomic_ref(reinterpret_cast<T*>(memory + offset)[index]);
  }
};

// The sending end in one call.
class SendingEnd {
 public:
  explicit SendingEnd(const RingPlace& place)
      : place_(place), sent_(stored().sent), open_(stored().division == division()) {}

  // Whether the next slot is free.
  bool can_put() const {
    const size_t credit = place_.layout.credit(place_.peer, place_.ring, place_.ranks);
    const uint32_t granted = RingPlace::word<uint32_t>(place_.own, credit).load(std::memory_order_acquire);
    const uint32_t need = open_ ? sent_ + 1 - place_.slots() : sent_;
    return static_cast<int32_t>(granted - need) >= 0;
  }
  // Fills the next slot. Its flag is raised with that of the next one if it is deferred.
  void put(const char* values, uint32_t bytes, uint32_t block, bool last, bool deferred) {
    char* const data = place_.other + place_.layout.slot_data(place_.rank, place_.ring);
    std::memcpy(data + size_t{sent_ & (place_.slots() - 1)} * place_.slot_bytes, values, bytes);
    ++sent_;
    open_ = true;
    pending_.push_back(
        channel::SlotFlag::of(sent_, has_large_slots(), block, last, channel::PayloadSize::of(bytes, block % 2 != 0)));
    if (!deferred) publish();
  }
  void publish() {
    const size_t flags = place_.layout.flags(place_.rank, place_.ring, place_.ranks);
    for (size_t i = 0; i < pending_.size(); ++i) {
      const uint32_t use = sent_ - static_cast<uint32_t>(pending_.size() - 1 - i);
      RingPlace::word<uint64_t>(place_.other, flags, (use - 1) & (place_.layout.slots() - 1))
          .store(pending_[i].word, std::memory_order_release);
    }
    pending_.clear();
  }
  void close() {
    publish();
    if (open_) stored() = {sent_, division()};
  }

 private:
  bool has_large_slots() const { return place_.slot_bytes > channel::ChannelLayout::slot_bytes; }
  uint32_t division() const { return channel::division_of(place_.slots(), place_.slot_bytes); }
  channel::SentState& stored() const {
    const size_t offset = place_.layout.sent(place_.peer, place_.ring, place_.ranks);
    return *reinterpret_cast<channel::SentState*>(place_.own + offset);
  }

  RingPlace place_;
  uint32_t sent_;
  bool open_;
  std::vector<channel::SlotFlag> pending_;
};

// The receiving end in one call.
class ReceivingEnd {
 public:
  explicit ReceivingEnd(const RingPlace& place)
      : place_(place), received_(*reinterpret_cast<uint32_t*>(place.own + received_offset())), credited_(received_) {}

  // The next payload, if it has arrived.
  bool poll(channel::SlotFlag* flag, const char** payload) const {
    const size_t flags = place_.layout.flags(place_.peer, place_.ring, place_.ranks);
    flag->word = RingPlace::word<uint64_t>(place_.own, flags, received_ & (place_.layout.slots() - 1))
                     .load(std::memory_order_acquire);
    *payload = place_.own + place_.layout.slot_data(place_.peer, place_.ring) +
               size_t{received_ & (place_.slots() - 1)} * place_.slot_bytes;
    return flag->is_of(received_ + 1);
  }
  void release() {
    ++received_;
    if (received_ - credited_ >= channel::slots_of_grant(place_.slots())) grant();
  }
  void close() {
    if (credited_ != received_) grant();
    *reinterpret_cast<uint32_t*>(place_.own + received_offset()) = received_;
  }

 private:
  size_t received_offset() const { return place_.layout.received(place_.peer, place_.ring, place_.ranks); }
  void grant() {
    credited_ = received_;
    const size_t credit = place_.layout.credit(place_.rank, place_.ring, place_.ranks);
    RingPlace::word<uint32_t>(place_.other, credit).store(received_, std::memory_order_relaxed);
  }

  RingPlace place_;
  uint32_t received_, credited_;
};

constexpr size_t words_offset = 256, channels_begin = 4096;

// The memory of a rank whose peers are all on other hosts.
struct RankMemory {
  int rank, ranks;
  channel::ChannelLayout layout;
  std::vector<char> scratch;
  std::vector<std::vector<char>> mirrors;

  RankMemory(int rank_, int ranks_, uint32_t rings)
      : rank(rank_),
        ranks(ranks_),
        layout(channels_begin, ranks_, rings, SIZE_MAX / 2),
        scratch(channels_begin + layout.bytes(ranks_)),
        mirrors(static_cast<size_t>(ranks_), scratch) {}

  char* mirror(int peer) { return mirrors[static_cast<size_t>(peer)].data(); }
  channel::Forwarder::Memory of(int peer, channel::FlowShare share = {}) {
    return {scratch.data(), mirror(peer), layout, words_offset, share};
  }
  RingPlace place(int peer, uint32_t ring, uint32_t slot_bytes) {
    return {scratch.data(), mirror(peer), layout, rank, peer, ranks, ring, slot_bytes};
  }
  // As if each ring had carried so many payloads.
  void begin_at(uint32_t count) {
    for (int peer = 0; peer < ranks; ++peer)
      for (uint32_t ring = 0; ring < layout.rings(); ++ring) {
        const auto set = [&](char* memory, size_t offset) { *reinterpret_cast<uint32_t*>(memory + offset) = count; };
        set(scratch.data(), layout.sent(peer, ring, ranks));
        set(scratch.data(), layout.received(peer, ring, ranks));
        set(scratch.data(), layout.credit(peer, ring, ranks));
        set(mirror(peer), layout.credit(rank, ring, ranks));
      }
  }
};

}  // namespace narrowcast::testing
