// The bits of a payload for the fast coders: bit p is bit p mod 8 of byte p div 8, the header word first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "store/rows/format.h"

namespace narrowcast::store {

// Appends fields of up to 64 bits to a buffer, which must have 16 more bytes than the fields take.
class FastBitWriter {
 public:
  FastBitWriter(uint8_t* begin, int first_bit) : begin_(begin), next_(begin), filled_(first_bit) {}

  // Bits of `bits` above `count` must be 0.
  __attribute__((always_inline)) void put(uint64_t bits, int count) {
    // Without branches: whether a word is full is hard to predict.
    word_ |= bits << filled_;
    std::memcpy(next_, &word_, sizeof word_);
    const uint64_t rest = bits >> 1 >> (63 - filled_);  // the bits that do not fit
    filled_ += count;
    const bool full = filled_ >= 64;
    next_ += static_cast<size_t>(filled_ >> 6) * sizeof word_;
    word_ = full ? rest : word_;
    filled_ &= 63;
  }

  // Completes the last word. Returns the bytes of the stream, a multiple of 4.
  size_t finish() {
    std::memcpy(next_, &word_, sizeof word_);
    return aligned4(static_cast<size_t>(next_ - begin_) + static_cast<size_t>(filled_ + 7) / 8);
  }

 private:
  uint8_t* begin_;
  uint8_t* next_;
  uint64_t word_ = 0;
  int filled_;
};

// Reads fields of up to 64 bits from a buffer, which must have 9 readable bytes after the last byte that a field begins
// in.
class FastBitReader {
 public:
  FastBitReader(const uint8_t* begin, size_t first_bit) : begin_(begin), at_(first_bit) {}

  // The next 64 bits.
  __attribute__((always_inline)) uint64_t peek() const {
    uint64_t word;
    std::memcpy(&word, begin_ + at_ / 8, sizeof word);
    const auto shift = static_cast<int>(at_ % 8);
    // Shifted twice, because a shift by 64 is undefined.
    return word >> shift | uint64_t{begin_[at_ / 8 + 8]} << 1 << (63 - shift);
  }
  __attribute__((always_inline)) void skip(size_t count) { at_ += count; }
  size_t position() const { return at_; }

 private:
  const uint8_t* begin_;
  size_t at_;
};

// Payloads of rows that do not shrink are up to 10/8 as long as the row before the coder notices: a byte can have a bit
// in a zero map and a participation bit.
inline constexpr size_t stream_buffer_bytes = header_bytes + max_row_bytes + max_row_bytes / 4 + 64;

// Copies a payload to a buffer of stream_buffer_bytes, with zeros behind it, so that no read leaves it. Returns its
// bits.
inline size_t copy_stream(uint32_t header, const uint8_t* body, size_t body_bytes, uint64_t row_bytes,
                          uint8_t* buffer) {
  // No payload is longer than a row that is stored raw.
  const size_t longest = aligned4(row_bytes), bytes = body_bytes < longest ? body_bytes : longest;
  std::memcpy(buffer, &header, header_bytes);
  if (bytes != 0) std::memcpy(buffer + header_bytes, body, bytes);
  std::memset(buffer + header_bytes + bytes, 0, 64);
  return 8 * (header_bytes + bytes);
}

}  // namespace narrowcast::store
