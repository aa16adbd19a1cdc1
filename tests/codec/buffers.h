// Buffers that notice what should not happen: writes outside, and (under a sanitizer) reads past the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "support/sanitized.h"

namespace narrowcast::tests {

using Bytes = std::vector<uint8_t>;

// Writable bytes between two walls of canaries, `misalignment` bytes off a 64-byte boundary.
class Guarded {
 public:
  explicit Guarded(size_t bytes, size_t misalignment = 0)
      : bytes_(bytes), storage_(64 + wall + misalignment + bytes + wall, canary) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data()) + wall;
    begin_ = wall + (64 - address % 64) % 64 + misalignment;
  }
  uint8_t* data() { return storage_.data() + begin_; }
  size_t size() const { return bytes_; }
  Bytes copy(size_t bytes) { return {data(), data() + bytes}; }
  void clear() { std::memset(data(), canary, bytes_); }
  // True while nothing outside the first `used` bytes has changed.
  bool untouched_after(size_t used) const {
    const auto is_canary = [](uint8_t byte) { return byte == canary; };
    return std::all_of(storage_.begin(), storage_.begin() + static_cast<std::ptrdiff_t>(begin_), is_canary) &&
           std::all_of(storage_.begin() + static_cast<std::ptrdiff_t>(begin_ + used), storage_.end(), is_canary);
  }
  bool intact() const { return untouched_after(bytes_); }

 private:
  static constexpr size_t wall = 128;
  static constexpr uint8_t canary = 0xc5;
  size_t bytes_;
  Bytes storage_;
  size_t begin_;
};

// A copy that ends where its allocation ends, `misalignment` bytes off the allocator's alignment.
class Exact {
 public:
  explicit Exact(std::span<const uint8_t> bytes, size_t misalignment = 0)
      : storage_(new uint8_t[misalignment + bytes.size()]), data_(storage_.get() + misalignment) {
    if (!bytes.empty()) std::memcpy(data_, bytes.data(), bytes.size());
  }
  const uint8_t* data() const { return data_; }

 private:
  std::unique_ptr<uint8_t[]> storage_;
  uint8_t* data_;
};

// Seeded, so that a failure can be repeated.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  int below(int bound) { return static_cast<int>(engine_() % static_cast<uint64_t>(bound)); }
  bool chance(double probability) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace narrowcast::tests
