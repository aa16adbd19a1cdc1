// Sends what the kernels of a rank have written to the mirror of a peer on another host.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "channel/network/forwarded.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

// Used by one thread.
class ForwardingSender {
 public:
  // mirror: the part of the peer's mirror that this rank writes.
  ForwardingSender(Stream& stream, const WrittenPart& mirror, std::span<SentCounts> rings)
      : stream_(stream), mirror_(mirror), rings_(rings) {}

  // Sends a batch of what is new, at most most_items. Returns 0, or the errno with which the connection has ended.
  int send_new();
  // Whether the last batch had items.
  bool has_sent() const { return batch_.header.items != 0; }
  // Tells the peer that nothing follows. Returns as send_new().
  int send_goodbye();
  // Bytes of the payloads sent.
  uint64_t payload_bytes() const { return payload_bytes_.load(std::memory_order_relaxed); }

 private:
  bool is_full() const { return batch_.header.items == most_items; }
  void begin();
  void add(ForwardedItem::Kind kind, uint32_t number, uint64_t value);
  void add_payload(uint32_t ring, uint32_t use, SlotFlag flag);
  void collect_call_words();
  void collect_ring(uint32_t ring);
  int send();

  Stream& stream_;
  const WrittenPart mirror_;
  const std::span<SentCounts> rings_;
  uint32_t next_ring_ = 0;  // where the next batch begins, so that every ring gets its turn
  std::array<uint64_t, WrittenPart::most_call_words> call_words_ = {};
  std::atomic<uint64_t> payload_bytes_{0};

  struct {
    BatchHeader header;
    std::array<ForwardedItem, most_items> items;
  } batch_ = {};
  std::array<iovec, 1 + most_items> parts_ = {};  // the batch, and the payloads in the mirror
  size_t parts_used_ = 0;
  uint64_t batch_bytes_ = 0;  // of its payloads
};

}  // namespace narrowcast::channel
