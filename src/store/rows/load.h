// Loads from addresses of any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace narrowcast::store {

template <typename T>
inline __attribute__((always_inline)) T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// The first 8 of `count` bytes; zeros follow if there are fewer.
inline __attribute__((always_inline)) uint64_t load8(const uint8_t* bytes, size_t count) {
  if (count >= sizeof(uint64_t)) return load<uint64_t>(bytes);
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

}  // namespace narrowcast::store
