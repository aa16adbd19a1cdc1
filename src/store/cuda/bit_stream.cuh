// Reads the bits of payloads.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"

namespace narrowcast::store::cuda {

// A stream of bits in 32-bit words, the lowest bit first. Reads beyond its end give zeros.
class BitStream {
 public:
  // words: 4-byte aligned.
  __device__ BitStream(const void* words, uint32_t bytes)
      : words_(static_cast<const uint32_t*>(words)), count_(bytes / 4) {}

  // `count` bits (at most 64) from bit `at`.
  __device__ uint64_t read(uint32_t at, uint32_t count) const {
    const uint32_t word = at / 32, shift = at % 32;
    const uint32_t low = word_at(word), middle = word_at(word + 1);
    uint64_t bits = (uint64_t{middle} << 32 | low) >> shift;
    if (shift + count > 64) bits |= uint64_t{word_at(word + 2)} << (64 - shift);
    return count >= 64 ? bits : bits & ((uint64_t{1} << count) - 1);
  }
  // 32 bits from bit `at`.
  __device__ uint32_t read_word(uint32_t at) const {
    return __funnelshift_r(word_at(at / 32), at % 32 == 0 ? 0 : word_at(at / 32 + 1), at % 32);
  }
  // 32 bits from bit at + further on. The stream has at least one of them; those beyond its end are of the memory after
  // it. The compiler adds multiples of 32 bits to the addresses of loads if it knows them.
  __device__ __forceinline__ uint32_t read_word_inside(uint32_t at, uint32_t further = 0) const {
    if (further % 32 != 0) return read_word_inside(at + further);
    const uint32_t* const from = words_ + at / 32 + further / 32;
    return __funnelshift_r(from[0], from[1], at % 32);
  }
  __device__ uint32_t read_bit(uint32_t at) const { return word_at(at / 32) >> at % 32 & 1; }

 private:
  __device__ uint32_t word_at(uint32_t word) const { return word < count_ ? words_[word] : 0; }

  const uint32_t* words_;
  uint32_t count_;
};

}  // namespace narrowcast::store::cuda
