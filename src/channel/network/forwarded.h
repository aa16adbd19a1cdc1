// What a rank of GPUs forwards to a peer on another host, and the messages that carry it.
//
// A rank has a mirror of each such peer: memory with the layout of the peer's scratch, to which its kernels write as if
// it were the scratch. What they have written is sent to the peer, which stores it in its scratch, where its kernels
// wait for it. Both memories are only read and written here: their kernels run on any device that can access them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "channel/memory/memory_channel.h"
#include "channel/peer/call_word.h"

namespace narrowcast::channel {

// Several flows between two ranks share the rings: flow `index` of `flows` has every flows-th, from that on. The first
// flow also has the announcements of calls.
struct FlowShare {
  uint32_t index = 0, flows = 1;

  uint32_t ring(uint32_t number) const { return index + number * flows; }
  uint32_t rings(uint32_t all) const { return all > index ? (all - index + flows - 1) / flows : 0; }
};

// What the rank `writer` writes to a rank's scratch, or to its mirror, and one flow carries. Rings are numbered within
// the flow.
class WrittenPart {
 public:
  // words_offset: of the CallWords in the scratch.
  WrittenPart(char* scratch, int writer, int ranks, const ChannelLayout& layout, size_t words_offset,
              FlowShare share = {})
      : scratch_(scratch),
        writer_(writer),
        ranks_(ranks),
        layout_(layout),
        words_offset_(words_offset),
        share_(share) {}

  uint32_t rings() const { return share_.rings(layout_.rings()); }
  // Of the slots, with their size in a call.
  static uint32_t slot_bytes(SlotFlag flag) {
    return flag.large_slots() ? ChannelLayout::large_slot_bytes : ChannelLayout::slot_bytes;
  }
  uint32_t slots(SlotFlag flag) const { return layout_.slots_of(slot_bytes(flag)); }
  // Of a slot that is used for the use-th time, counted from 1. Kernels use all slots of a ring between hosts.
  char* payload(uint32_t ring, uint32_t use, SlotFlag flag) const {
    return scratch_ + layout_.slot_data(writer_, share_.ring(ring)) +
           size_t{(use - 1) & (slots(flag) - 1)} * slot_bytes(flag);
  }
  std::atomic_ref<uint64_t> flag(uint32_t ring, uint32_t use) const {
    return at<uint64_t>(layout_.flags(writer_, share_.ring(ring), ranks_), (use - 1) & (layout_.slots() - 1));
  }
  std::atomic_ref<uint32_t> credit(uint32_t ring) const {
    return at<uint32_t>(layout_.credit(writer_, share_.ring(ring), ranks_), 0);
  }

  static constexpr uint32_t most_call_words = call_kinds * CallWords::history;
  uint32_t call_words() const { return share_.index == 0 ? most_call_words : 0; }
  std::atomic_ref<uint64_t> call_word(uint32_t number) const {
    return at<uint64_t>(words_offset_ + offsetof(CallWords, announced), number * max_gpu_ranks + writer_);
  }

 private:
  template <typename Word>
  std::atomic_ref<Word> at(size_t offset, size_t index) const {
    return std::atomic_ref(reinterpret_cast<Word*>(scratch_ + offset)[index]);
  }

  char* scratch_;
  int writer_, ranks_;
  ChannelLayout layout_;
  size_t words_offset_;
  FlowShare share_;
};

// The counts of a pair of rings, to and from the peer, are those of the kernels, modulo 2^32. These are written by the
// sending thread, and the receiving thread checks with them what the peer sends.
struct SentCounts {
  std::atomic<uint32_t> sent;     // payloads for the peer
  std::atomic<uint32_t> granted;  // payloads of the peer whose slots it knows to be released
};

// A batch is a BatchHeader, its items, and the payloads that they announce, in order. In the byte order of the host.
struct BatchHeader {
  static constexpr uint32_t current_magic = 0x3162636e;  // "ncb1"
  uint32_t magic;
  uint32_t items;  // 1 to most_items
};
inline constexpr uint32_t most_items = 256;

struct ForwardedItem {
  enum Kind : uint32_t {
    payload = 1,    // number: of the ring; value: a SlotFlag
    credit = 2,     // number: of the ring; value: payloads that are released
    call_word = 3,  // number: see WrittenPart; value: the word
    goodbye = 4     // the last item: nothing follows
  };
  uint32_t kind, number;
  uint64_t value;
};

}  // namespace narrowcast::channel
