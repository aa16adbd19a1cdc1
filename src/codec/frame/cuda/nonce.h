// A number by which a kernel knows the words that its own CTAs wrote, whatever else stands in the caller's workspace: it need
// not be cleared before.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>

namespace narrowcast::codec::cuda {

struct Nonce {
  uint32_t of[3];
};

// One that no other launch of this process has; where the 2^96 of a process begin is left to chance. A graph's kernel has the
// same every time: there the words are cleared before it. Never all zeros.
inline Nonce new_nonce() {
  struct First {
    uint32_t high;
    uint64_t low;
    First() {
      std::random_device random;
      high = random() | 1;
      low = uint64_t{random()} << 32 | random();
    }
  };
  static const First first;
  static std::atomic<uint64_t> count{0};
  const uint64_t low = first.low + count.fetch_add(1, std::memory_order_relaxed);
  return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), first.high}};
}

}  // namespace narrowcast::codec::cuda
