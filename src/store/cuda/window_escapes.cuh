// Escapes of the coder `window` of rows (docs/format/rows.md). Each lane picks the exponents of its elements with byte
// permutations, all in the same number of instructions whatever the number of its escapes: from its tokens, or from a
// list in shared memory.
#pragma once

#include <cstdint>

#include "../../codec/window/format.h"
#include "../../device/warp.cuh"

namespace narrowcast::store::cuda {

namespace window = codec::window;

// 0xff in the bytes that are negative, and 0 in the others.
__device__ __forceinline__ uint32_t signs(uint32_t bytes) { return device::permute_bytes(bytes, 0, 0xba98); }

struct EightBytes {
  uint32_t low, high;

  // The byte that each of the lower four nibbles of `numbers` says.
  __device__ uint32_t pick(uint32_t numbers) const { return device::permute_bytes(low, high, numbers); }
};

// Eight bytes of a list in shared memory, which is 4-byte aligned. May load up to eleven bytes after the first.
__device__ inline EightBytes listed_bytes(const char* list, uint32_t at) {
  const auto* const words = reinterpret_cast<const uint32_t*>(list + (at & ~3u));
  const uint32_t middle = words[1];
  return {__funnelshift_r(words[0], middle, at * 8), __funnelshift_r(middle, words[2], at * 8)};
}

// Which of a lane's 32 elements are escapes. Escapes are numbered by byte (a column of the eight words), then word.
class LaneEscapes {
  static constexpr int words = window::group_words;

 public:
  // codes: none is greater than escape_code.
  __device__ LaneEscapes(const uint32_t (&codes)[words], uint32_t escape_code) {
    const uint32_t to_sign = device::bytes4(0x80 - escape_code);
    // Minus the sum of the masks: the numbers in the columns times 1 - 2^8, which is the inverse of bytes4(1).
    uint32_t sum = 0;
#pragma unroll
    for (int word = 0; word < words; ++word) {
      masks_[word] = signs(codes[word] + to_sign);
      if (word % 2 == 0)
        sums_[word / 2] = sum;
      else
        sums_[word / 2] += sum * 16;
      sum -= masks_[word];
    }
    in_columns_ = sum * device::bytes4(1);
    up_to_columns_ = in_columns_ * device::bytes4(1);
  }
  __device__ uint32_t count() const { return up_to_columns_ >> 24; }
  // The bytes of a word whose elements are escapes are 0xff, the others 0.
  __device__ uint32_t mask(int word) const { return masks_[word]; }
  // Whether each half of the columns has at most eight escapes.
  __device__ bool few() const {
    return ((in_columns_ + (in_columns_ >> 8)) + device::bytes4(0x80 - 9) & 0x00800080) == 0;
  }

  // The number of escapes in the columns before `column`.
  __device__ uint32_t before_column(int column) const {
    return column == 0 ? 0 : up_to_columns_ >> 8 * (column - 1) & 0xff;
  }

  // Calls visit(word, bytes) for all words; bytes: those that belong to the word's escapes, and anything in other
  // bytes. bytes: of the escapes, of which the lane has at most eight.
  template <typename Visit>
  __device__ void for_each_word(const EightBytes& bytes, Visit visit) const {
    for_each_word(bytes, bytes, up_to_columns_ << 8, visit);
  }
  // The same. lower, upper: from the first escape of each half of the columns on; few() is true for this lane.
  template <typename Visit>
  __device__ void for_each_word(const EightBytes& lower, const EightBytes& upper, Visit visit) const {
    for_each_word(lower, upper, in_columns_ << 8 & 0xff00ff00, visit);
  }
  // The same for any number of escapes. columns: from the first escape of each on.
  template <typename Visit>
  __device__ void for_each_word(const EightBytes (&columns)[4], Visit visit) const {
#pragma unroll
    for (int pair = 0; pair < words / 2; ++pair) {
      const uint32_t numbers = ranks(pair), above = numbers >> 16;
      const uint32_t a = __byte_perm(columns[0].pick(numbers), columns[1].pick(numbers), 0x7610);
      const uint32_t b = __byte_perm(columns[2].pick(above), columns[3].pick(above), 0x7610);
      visit(2 * pair, __byte_perm(a, b, 0x6420));
      visit(2 * pair + 1, __byte_perm(a, b, 0x7531));
    }
  }

 private:
  // For each element, the number of escapes before it in its column: for words 2 * pair and 2 * pair + 1 in the low and
  // the high nibbles.
  __device__ uint32_t ranks(int pair) const { return sums_[pair] * device::bytes4(1); }
  // before: for each column, the number of its first escape in the bytes of its half.
  template <typename Visit>
  __device__ void for_each_word(const EightBytes& lower, const EightBytes& upper, uint32_t before, Visit visit) const {
#pragma unroll
    for (int pair = 0; pair < words / 2; ++pair) {
      const uint32_t numbers = ranks(pair) + before * 17;
      const uint32_t a = lower.pick(numbers), b = upper.pick(numbers >> 16);
      visit(2 * pair, __byte_perm(a, b, 0x6420));
      visit(2 * pair + 1, __byte_perm(a, b, 0x7531));
    }
  }

  uint32_t masks_[words];
  uint32_t sums_[words / 2];  // ranks times 1 - 2^8
  // Escapes of each column, and of all columns up to it.
  uint32_t in_columns_, up_to_columns_;
};

// Turns tokens into exponents.
template <window::ValueType Type>
class Tokens {
 public:
  static constexpr int planes = Type.exponent_bits > 8 ? 2 : 1;  // the low and the high bytes of exponents

  __device__ Tokens(uint32_t base, uint32_t escape_code)
      : add_(base - window::below_tokens), escape_code_(device::bytes4(escape_code)) {}

  // exponents[plane]: of the four tokens in the bytes of `tokens`; 0 for far tokens.
  __device__ void to_exponents(uint32_t tokens, uint32_t (&exponents)[planes]) const {
    using device::bytes4;
    using device::halves2;
    constexpr uint32_t mask = (1u << Type.exponent_bits) - 1;
    const uint32_t is_above = signs(tokens + bytes4(0x80 - window::below_tokens));
    const uint32_t is_zero = signs(tokens + bytes4(0x80 - window::zero_token));
    const uint32_t from_lowest = tokens + (is_above & escape_code_);
    // The top bits are added by themselves, so that nothing is carried to the next element.
    if constexpr (planes == 1) {
      const uint32_t sum = from_lowest + bytes4(add_ & 0x7f);
      exponents[0] = (sum ^ bytes4(add_ & 0x80)) & bytes4(mask) & ~is_zero;
    } else {
      uint32_t halves[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t sum = __byte_perm(from_lowest, 0, i == 0 ? 0x4140 : 0x4342) + halves2(add_ & 0x7fff);
        halves[i] = (sum ^ halves2(add_ & 0x8000)) & halves2(mask);
      }
      exponents[0] = __byte_perm(halves[0], halves[1], 0x6420) & ~is_zero;
      exponents[1] = __byte_perm(halves[0], halves[1], 0x7531) & ~is_zero;
    }
  }

  // Not 0: exponents may be beyond the ends of a byte, and those of eight_exponents() are undefined.
  __device__ uint32_t are_rare() const {
    constexpr uint32_t mask = (1u << Type.exponent_bits) - 1;
    if constexpr (mask < 0xff) return 0;
    // Unsigned, so that this also holds for a difference below 0.
    return add_ > mask - window::below_tokens - 3 - (escape_code_ & 0xff) ? 1 : 0;
  }
  // Of eight tokens, in order. rare: gets bits if any of them is far or zero; their exponents are undefined. Bytes are
  // selected from a table of numbers, where 0 is exponent base - below_tokens.
  __device__ EightBytes eight_exponents(uint32_t tokens, uint32_t* rare) const
    requires(planes == 1)
  {
    using device::bytes4;
    constexpr uint32_t mark = 0x40, mask = (1u << Type.exponent_bits) - 1;
    static_assert(window::below_tokens == 10 && window::zero_token == 14);
    // The nibbles that are not in a table's half have their highest bit set there: the byte is a sign, 0.
    const uint32_t flipped = tokens ^ 0x88888888;
    const uint32_t from_8 = 0x0b0a0908 + (escape_code_ & 0xffff0000),
                   from_12 = (mark << 24 | mark << 16 | 0x0d0c) + (escape_code_ & 0xffff);
    const uint32_t low = device::permute_bytes(from_8, from_12, flipped),
                   high = device::permute_bytes(from_8, from_12, flipped >> 16);
    *rare |= (low | high) & bytes4(mark);
    // Nothing is carried to the next element: numbers are less than 64, and are_rare() tests sums of eight bits.
    const auto exponents = [&](uint32_t numbers, uint32_t shift) {
      return (device::permute_bytes(0x03020100, 0x07060504, tokens >> shift) + numbers + bytes4(add_ & mask)) &
             bytes4(mask);
    };
    return {exponents(low, 0), exponents(high, 16)};
  }

 private:
  uint32_t add_, escape_code_;
};

// Bit 4 i is 1 for far tokens, i of which are in the nibbles before.
__device__ __forceinline__ uint32_t far_nibbles(uint32_t tokens) {
  const uint32_t pairs = tokens & tokens >> 1;
  return pairs & pairs >> 2 & 0x11111111;
}

}  // namespace narrowcast::store::cuda
