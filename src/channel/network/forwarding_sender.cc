#include "channel/network/forwarding_sender.h"

namespace narrowcast::channel {

int ForwardingSender::send_new() {
  begin();
  collect_call_words();
  for (size_t i = 0; i < rings_.size(); ++i) {
    collect_ring(next_ring_);
    if (is_full()) break;  // this ring may have more
    if (++next_ring_ == rings_.size()) next_ring_ = 0;
  }
  return has_sent() ? send() : 0;
}

int ForwardingSender::send_goodbye() {
  begin();
  add(ForwardedItem::goodbye, 0, 0);
  return send();
}

void ForwardingSender::begin() {
  batch_.header = {BatchHeader::current_magic, 0};
  parts_used_ = 1;
  batch_bytes_ = 0;
}

void ForwardingSender::add(ForwardedItem::Kind kind, uint32_t number, uint64_t value) {
  batch_.items[batch_.header.items++] = {kind, number, value};
}

void ForwardingSender::add_payload(uint32_t ring, uint32_t use, SlotFlag flag) {
  add(ForwardedItem::payload, ring, flag.word);
  char* const payload = mirror_.payload(ring, use, flag);
  const uint32_t bytes = flag.payload().bytes();
  batch_bytes_ += bytes;
  iovec& last = parts_[parts_used_ - 1];
  if (parts_used_ > 1 && static_cast<char*>(last.iov_base) + last.iov_len == payload) {
    last.iov_len += bytes;
  } else {
    parts_[parts_used_++] = {payload, bytes};
  }
}

// There are always few of them, and no batch begins full.
void ForwardingSender::collect_call_words() {
  static_assert(WrittenPart::most_call_words < most_items);
  for (uint32_t number = 0; number < mirror_.call_words(); ++number) {
    const uint64_t word = mirror_.call_word(number).load(std::memory_order_relaxed);
    if (word == call_words_[number]) continue;
    call_words_[number] = word;
    add(ForwardedItem::call_word, number, word);
  }
}

void ForwardingSender::collect_ring(uint32_t ring) {
  SentCounts& state = rings_[ring];
  // The kernel grants a credit after its last load from the slots, and the peer reads nothing else.
  const uint32_t credit = mirror_.credit(ring).load(std::memory_order_relaxed);
  if (credit != state.granted.load(std::memory_order_relaxed)) {
    if (is_full()) return;
    state.granted.store(credit, std::memory_order_release);
    add(ForwardedItem::credit, ring, credit);
  }
  for (uint32_t use = state.sent.load(std::memory_order_relaxed) + 1; !is_full(); ++use) {
    const SlotFlag flag{mirror_.flag(ring, use).load(std::memory_order_acquire)};
    if (!flag.is_of(use)) return;
    add_payload(ring, use, flag);
    state.sent.store(use, std::memory_order_release);  // before the peer can release it
  }
}

int ForwardingSender::send() {
  parts_[0] = {&batch_, sizeof batch_.header + batch_.header.items * sizeof(ForwardedItem)};
  if (const int error = stream_.send(std::span(parts_).first(parts_used_))) return error;
  payload_bytes_.fetch_add(batch_bytes_, std::memory_order_relaxed);
  return 0;
}

}  // namespace narrowcast::channel
