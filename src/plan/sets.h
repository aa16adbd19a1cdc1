// Sets that are joined step by step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace narrowcast::plan {

class Sets {
 public:
  explicit Sets(size_t size) : parents_(size) { std::iota(parents_.begin(), parents_.end(), 0u); }
  // The first member of the set.
  uint32_t find(uint32_t one) {
    while (parents_[one] != one) one = parents_[one] = parents_[parents_[one]];
    return one;
  }
  void join(uint32_t a, uint32_t b) {
    const uint32_t first = find(a), second = find(b);
    parents_[std::max(first, second)] = std::min(first, second);
  }

 private:
  std::vector<uint32_t> parents_;
};

}  // namespace narrowcast::plan
