#include "channel/network/forwarding_receiver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace narrowcast::channel {

ForwardingReceiver::ForwardingReceiver(Stream& stream, const WrittenPart& scratch, std::span<const SentCounts> sent)
    : stream_(stream), scratch_(scratch), sent_(sent) {
  for (const SentCounts& counts : sent) rings_.push_back({counts.granted, counts.sent, counts.sent, counts.granted});
}

int ForwardingReceiver::run() {
  while (!has_goodbye_)
    if (const int error = receive_batch(); error != 0) return error == Stream::closed ? 0 : error;
  return 0;
}

// Until the buffer has this many bytes.
int ForwardingReceiver::fill(size_t bytes) {
  if (begin_ + bytes > buffer_.size()) {
    std::copy(buffer_.begin() + begin_, buffer_.begin() + end_, buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  while (buffered() < bytes) {
    iovec part = {buffer_.data() + end_, buffer_.size() - end_};
    size_t got = 0;
    if (const int error = stream_.receive({&part, 1}, &got)) return error;
    end_ += got;
  }
  return 0;
}

int ForwardingReceiver::receive_batch() {
  if (const int error = fill(sizeof(BatchHeader))) return error;
  BatchHeader header;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  if (header.magic != BatchHeader::current_magic || header.items == 0 || header.items > most_items) return EBADMSG;
  const size_t bytes = sizeof header + header.items * sizeof(ForwardedItem);
  if (const int error = fill(bytes)) return error;
  arrivals_used_ = parts_used_ = 0;
  payloads_bytes_ = 0;
  for (uint32_t i = 0; i < header.items; ++i) {
    ForwardedItem item;
    std::memcpy(&item, buffer_.data() + begin_ + sizeof header + i * sizeof item, sizeof item);
    if (!take(item)) return EBADMSG;
  }
  begin_ += bytes;
  const int error = receive_payloads();
  has_goodbye_ = says_goodbye_ && error == 0;
  return error;
}

// False if the item is not valid.
bool ForwardingReceiver::take(const ForwardedItem& item) {
  if (says_goodbye_) return false;
  switch (item.kind) {
    case ForwardedItem::payload: return item.number < rings_.size() && take_payload(item.number, {item.value});
    case ForwardedItem::credit: {
      if (item.number >= rings_.size() || item.value > UINT32_MAX) return false;
      Ring& ring = rings_[item.number];
      const auto credit = static_cast<uint32_t>(item.value);
      const auto is_valid = [&] { return credit - ring.credit <= ring.sent - ring.credit; };
      if (!is_valid()) ring.sent = sent_[item.number].sent.load(std::memory_order_acquire);
      if (!is_valid()) return false;
      ring.credit = credit;
      scratch_.credit(item.number).store(credit, std::memory_order_release);
      return true;
    }
    case ForwardedItem::call_word:
      if (item.number >= scratch_.call_words()) return false;
      scratch_.call_word(item.number).store(item.value, std::memory_order_relaxed);
      return true;
    case ForwardedItem::goodbye: says_goodbye_ = true; return true;
    default: return false;
  }
}

// False if the peer may not fill the slot.
bool ForwardingReceiver::take_payload(uint32_t ring, SlotFlag flag) {
  Ring& state = rings_[ring];
  const uint32_t use = state.received + 1, bytes = flag.payload().bytes();
  const auto is_free = [&] { return use - state.granted <= scratch_.slots(flag); };
  if (!is_free()) state.granted = sent_[ring].granted.load(std::memory_order_acquire);
  if (!flag.is_of(use) || !is_free() || !flag.payload() || bytes > WrittenPart::slot_bytes(flag)) return false;
  state.received = use;
  payloads_bytes_ += bytes;
  arrivals_[arrivals_used_++] = {payloads_bytes_, ring, use, flag};
  char* const payload = scratch_.payload(ring, use, flag);
  iovec* const last = parts_used_ == 0 ? nullptr : &parts_[parts_used_ - 1];
  if (last != nullptr && static_cast<char*>(last->iov_base) + last->iov_len == payload) {
    last->iov_len += bytes;
  } else {
    parts_[parts_used_++] = {payload, bytes};
  }
  return true;
}

int ForwardingReceiver::receive_payloads() {
  missing_ = std::span(parts_).first(parts_used_);
  stored_bytes_ = 0;
  raised_ = 0;
  store_buffered();
  while (stored_bytes_ != payloads_bytes_) {
    // The buffer is empty: what follows the payloads goes there.
    begin_ = end_ = 0;
    parts_[parts_used_] = {buffer_.data(), buffer_.size()};
    size_t got = 0;
    if (const int error = stream_.receive({missing_.data(), missing_.size() + 1}, &got)) return error;
    const size_t stored = std::min<size_t>(got, payloads_bytes_ - stored_bytes_);
    skip(&missing_, stored);
    stored_bytes_ += stored;
    end_ = got - stored;
    raise_flags();
  }
  return 0;
}

// Moves payloads from the buffer to their slots.
void ForwardingReceiver::store_buffered() {
  while (buffered() != 0 && stored_bytes_ != payloads_bytes_) {
    const size_t bytes = std::min(buffered(), missing_.front().iov_len);
    std::memcpy(missing_.front().iov_base, buffer_.data() + begin_, bytes);
    begin_ += bytes;
    stored_bytes_ += bytes;
    skip(&missing_, bytes);
  }
  raise_flags();
}

void ForwardingReceiver::raise_flags() {
  for (; raised_ != arrivals_used_ && arrivals_[raised_].end_bytes <= stored_bytes_; ++raised_) {
    const Arrival& arrival = arrivals_[raised_];
    scratch_.flag(arrival.ring, arrival.use).store(arrival.flag.word, std::memory_order_release);
  }
}

}  // namespace narrowcast::channel
