// Moves selected bits of a word to its bottom, and back, for each instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "store/rows/fast.h"

namespace narrowcast::store {

#define STORE_INLINE inline __attribute__((always_inline))

// Moves the bits of `bits` where `select` is 1 to the bottom, and back.
struct Portable {
  static STORE_INLINE uint64_t extract(uint64_t bits, uint64_t select) {
    uint64_t result = 0;
    for (int to = 0; select != 0; select &= select - 1, ++to) result |= (bits >> __builtin_ctzll(select) & 1) << to;
    return result;
  }
  static STORE_INLINE uint64_t deposit(uint64_t bits, uint64_t select) {
    uint64_t result = 0;
    for (; select != 0; select &= select - 1, bits >>= 1) result |= (bits & 1) << __builtin_ctzll(select);
    return result;
  }
};

#if defined(__x86_64__)
// In assembly, because intrinsics cannot be inlined into templates that are compiled for every instruction set.
struct Bmi2 {
  static STORE_INLINE uint64_t extract(uint64_t bits, uint64_t select) {
    uint64_t result;
    asm("pext %2, %1, %0" : "=r"(result) : "r"(bits), "r"(select));
    return result;
  }
  static STORE_INLINE uint64_t deposit(uint64_t bits, uint64_t select) {
    uint64_t result;
    asm("pdep %2, %1, %0" : "=r"(result) : "r"(bits), "r"(select));
    return result;
  }
};
#endif

#if defined(__x86_64__)
template <InstructionSet set>
using BitsOf = std::conditional_t<set == InstructionSet::baseline, Portable, Bmi2>;
#else
template <InstructionSet set>
using BitsOf = Portable;
#endif

}  // namespace narrowcast::store
