// Collects the bits of a word at the ones of a mask, and distributes them again.
#pragma once

#include <cstdint>

namespace narrowcast::codec::dense {

// The moves take five steps, of 1, 2, 4, 8 and 16 places (Hacker's Delight, 7-4 and 7-5). They depend on the mask only.
class BitMoves {
 public:
  __device__ __forceinline__ explicit BitMoves(uint32_t mask) : mask_(mask) {
    uint32_t zeros_below = ~mask << 1;  // bit i: whether the number of zeros below it is odd, once summed up
#pragma unroll
    for (int step = 0; step < 5; ++step) {
      uint32_t odd = zeros_below ^ zeros_below << 1;
      odd ^= odd << 2;
      odd ^= odd << 4;
      odd ^= odd << 8;
      odd ^= odd << 16;
      moved_[step] = odd & mask;
      mask = (mask ^ moved_[step]) | moved_[step] >> (1 << step);
      zeros_below &= ~odd;
    }
  }
  // The bits of `word` at the ones of the mask, moved to the lowest places.
  __device__ __forceinline__ uint32_t collect(uint32_t word) const {
    word &= mask_;
#pragma unroll
    for (int step = 0; step < 5; ++step) {
      const uint32_t moved = word & moved_[step];
      word = (word ^ moved) | moved >> (1 << step);
    }
    return word;
  }
  // The inverse: the lowest bits of `bits` moved to the ones of the mask.
  __device__ __forceinline__ uint32_t distribute(uint32_t bits) const {
#pragma unroll
    for (int step = 4; step >= 0; --step) bits = (bits & ~moved_[step]) | (bits << (1 << step) & moved_[step]);
    return bits & mask_;
  }

 private:
  uint32_t mask_, moved_[5];
};

}  // namespace narrowcast::codec::dense
