// How often rows were used: counters that the policy LFU compares.
#pragma once

#include <cstdint>

#include "cache_sets.h"

namespace narrowcast::store::cuda {

__device__ inline uint32_t mixed(uint32_t row) {
  row ^= row >> 16;
  row *= 0x85ebca6bu;
  row ^= row >> 13;
  row *= 0xc2b2ae35u;
  return row ^ row >> 16;
}

// One of the two counters of the uses of a row, which other rows share.
class UseCounter {
 public:
  UseCounter() = default;
  __device__ UseCounter(const CacheSets& sets, uint32_t row, uint32_t number)
      : place_(mixed(row + (number + 1) * 0x9e3779b9u) & (4 * sets.use_words - 1)) {}

  __device__ uint32_t word(const CacheSets& sets) const { return sets.uses[place_ / 4]; }
  __device__ uint32_t value(uint32_t word) const { return word >> shift() & 0xff; }
  // Counts one more use if the word is `word`. Returns what it was.
  __device__ uint32_t exchange(const CacheSets& sets, uint32_t word) const {
    return atomicCAS(&sets.uses[place_ / 4], word, word + (1u << shift()));
  }
  static constexpr uint32_t most = 100;

 private:
  __device__ uint32_t shift() const { return place_ % 4 * 8; }
  uint32_t place_;
};

// The number of uses of a row: the smaller count is closer.
__device__ inline uint32_t uses_of(const CacheSets& sets, uint32_t row) {
  const UseCounter first(sets, row, 0), second(sets, row, 1);
  return min(first.value(first.word(sets)), second.value(second.word(sets)));
}

// Counts a use of each of some rows. exists: bits by row. Loads and exchanges of all rows are on their way at the same
// time. Counts to UseCounter::most: an addition that is not conditional would overflow into other counters if many
// threads made it.
template <uint32_t Count>
__device__ inline void add_uses(const CacheSets& sets, const uint32_t (&rows)[Count], uint32_t exists) {
  constexpr uint32_t counters_of_row = 2;
  UseCounter counters[counters_of_row * Count];
  uint32_t words[counters_of_row * Count], found[counters_of_row * Count], left = 0;
#pragma unroll
  for (uint32_t i = 0; i < counters_of_row * Count; ++i) {
    counters[i] = UseCounter(sets, rows[i / counters_of_row], i % counters_of_row);
    // It may be an old one from a cache; the exchange returns the current one.
    words[i] = (exists >> i / counters_of_row & 1) != 0 ? counters[i].word(sets) : ~0u;
  }
#pragma unroll
  for (uint32_t i = 0; i < counters_of_row * Count; ++i)
    if (counters[i].value(words[i]) < UseCounter::most) left |= 1u << i;
  while (left != 0) {
#pragma unroll
    for (uint32_t i = 0; i < counters_of_row * Count; ++i)
      if ((left >> i & 1) != 0) found[i] = counters[i].exchange(sets, words[i]);
#pragma unroll
    for (uint32_t i = 0; i < counters_of_row * Count; ++i) {
      if ((left >> i & 1) == 0) continue;
      if (found[i] == words[i] || counters[i].value(found[i]) >= UseCounter::most) left &= ~(1u << i);
      words[i] = found[i];
    }
  }
}

}  // namespace narrowcast::store::cuda
