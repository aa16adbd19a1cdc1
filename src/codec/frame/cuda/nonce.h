// A number that distinguishes the words that the CTAs of one launch write from the old content of the caller's
// workspace, so that the workspace need not be cleared.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>

namespace narrowcast::codec::cuda {

struct Nonce {
  uint32_t of[3];
};

// Returns a nonce that no other launch of this process has. Each process begins at a random one of 2^96. Never all
// zeros. All replays of a graph have the same nonce, so graphs must clear the words before the kernel.
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
