// Random numbers of stochastic rounding: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
// as 1, 2, 3", 2011). A counter determines them, so a CPU computes what any kernel used. For host and device code.
#pragma once

#include <cstdint>

#include "../../device/block_context.h"
#include "format.h"

namespace narrowcast::codec::grouped {

struct RandomWords {
  uint32_t word[4];
};

constexpr RandomWords philox(RandomWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xd2511f53} * counter.word[0], second = uint64_t{0xcd9e8d57} * counter.word[2];
    counter = {{static_cast<uint32_t>(second >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(second),
                static_cast<uint32_t>(first >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(first)}};
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  return counter;
}

// The numbers of a chunk, whose first value has this index in the block.
constexpr RandomWords random_words(const device::BlockContext& context, uint32_t seed, uint32_t index) {
  const uint64_t elem = context.first_elem + index;
  return philox({{static_cast<uint32_t>(elem), static_cast<uint32_t>(elem >> 32 & 0xffff) | context.stage << 16,
                  context.call, context.rank}},
                seed, 0);
}
// What is added to the quotient of a value, in units of 2^-random_bits of a step.
constexpr uint32_t random_number(const RandomWords& words, uint32_t value) {
  return (words.word[value / 2] >> (value % 2 * 16) & 0xffff) >> (16 - random_bits);
}

}  // namespace narrowcast::codec::grouped
