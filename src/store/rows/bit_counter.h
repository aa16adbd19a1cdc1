// Counts the ones of samples.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace narrowcast::store {

// How often each bit of a 64-bit word is 1.
class BitCounter {
 public:
  void add(uint64_t word) {
    for (size_t bit = 0; bit < sums_.size(); ++bit) sums_[bit] += word >> bit & 0x0101010101010101;
    if (++added_ == 255) flush();
  }
  // By bit, of all words so far.
  const std::array<uint64_t, 64>& counts() {
    flush();
    return counts_;
  }

 private:
  void flush() {
    for (size_t bit = 0; bit < counts_.size(); ++bit) counts_[bit] += sums_[bit % 8] >> bit / 8 * 8 & 0xff;
    sums_ = {};
    added_ = 0;
  }

  std::array<uint64_t, 8> sums_{};  // byte i of sums_[b]: bit b of byte i, of the words since the last flush
  uint32_t added_ = 0;              // since the last flush
  std::array<uint64_t, 64> counts_{};
};

}  // namespace narrowcast::store
