// Splits four adjacent values of a lane into words with one byte per value, and joins them again, for each value type.
// codec/window/format.h describes the parts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/lane_values.cuh"
#include "../../device/warp.cuh"
#include "format.h"

namespace narrowcast::codec::window {

// The heads of four values, two in each word. An 8-bit head is in the upper byte of its 16-bit half.
struct Heads {
  uint32_t pair[2];
};

// The low and the high bytes of four heads.
__device__ __forceinline__ uint32_t low_bytes(const Heads& heads) {
  return __byte_perm(heads.pair[0], heads.pair[1], 0x6420);
}
__device__ __forceinline__ uint32_t high_bytes(const Heads& heads) {
  return __byte_perm(heads.pair[0], heads.pair[1], 0x7531);
}

// Computes the codes of four heads, one in each byte: min(exponent - base, escape_code).
template <ValueType Type>
class Coder {
 public:
  __device__ __forceinline__ Coder(uint32_t base, uint32_t escape_code)
      : minus_base_(device::halves2((0u - (base << shift)) & 0xffff)),
        limit_(device::halves2(escape_code << shift | ((1u << shift) - 1))) {}

  __device__ __forceinline__ uint32_t codes(const Heads& heads) const {
    // The left shift drops the signs. The lower head's sign moves below the upper head's exponent, where it has no
    // effect.
    const uint32_t low = __viaddmin_u16x2(heads.pair[0] << 1, minus_base_, limit_);
    const uint32_t high = __viaddmin_u16x2(heads.pair[1] << 1, minus_base_, limit_);
    if constexpr (shift < 8) {
      return __byte_perm(low >> shift, high >> shift, 0x6420);
    } else {
      const uint32_t bytes = __byte_perm(low, high, 0x7531);
      return shift == 8 ? bytes : bytes >> (shift - 8) & device::bytes4((1u << Type.exponent_bits) - 1);
    }
  }

 private:
  static constexpr int shift = 16 - Type.exponent_bits;
  uint32_t minus_base_, limit_;
};

// Bits 0 to 7 of the rest of four heads, one byte each; for types with rest_bytes.
template <ValueType Type>
__device__ __forceinline__ uint32_t rest_bytes_of(const Heads& heads) {
  if constexpr (Type.rest_bits != 0) return low_bytes(heads);
  return device::select_bits(device::bytes4(0x7f), low_bytes(heads), high_bytes(heads));
}

// The upper bits of the rest of four heads (the sign above mantissa bits); for types with rest_bits.
template <ValueType Type>
__device__ __forceinline__ uint32_t rest_bits_of(const Heads& heads) {
  constexpr int mantissa = Type.rest_bits - 1;
  const uint32_t high = high_bytes(heads);
  const uint32_t low_part = Type.exponent_bits > 8 ? low_bytes(heads) : high;
  return (low_part & device::bytes4((1u << mantissa) - 1)) | (high >> (7 - mantissa) & device::bytes4(1u << mantissa));
}

// What a type stores of the rest of four values: rest bytes, packed rest bits, and two tails in each word of `tails`.
struct Rest {
  uint32_t bytes, bits;
  uint2 tails;
};

// Converts the rest of float32 (Stored keeps 24 bits), and the upper 11 or 8 bits of it.
template <ValueType Stored>
__device__ __forceinline__ Rest trimmed_rest(const Rest& float32_rest) {
  if constexpr (Stored.kept_bits() != 11) return float32_rest;
  const uint32_t tails = __byte_perm(float32_rest.tails.x, float32_rest.tails.y, 0x7531);
  return {device::select_bits(device::bytes4(0xf8), float32_rest.bytes << 3, tails >> 5),
          float32_rest.bytes >> 5 & device::bytes4(0x7),
          {}};
}
template <ValueType Stored>
__device__ __forceinline__ Rest float32_rest_of(const Rest& rest) {
  if constexpr (Stored.kept_bits() == 8) return {rest.bytes, 0, {}};
  if constexpr (Stored.kept_bits() != 11) return rest;
  const uint32_t tails = rest.bytes << 5 & device::bytes4(0xe0);
  return {device::select_bits(device::bytes4(0xe0), rest.bits << 5, rest.bytes >> 3),
          0,
          {__byte_perm(tails, 0, 0x1404), __byte_perm(tails, 0, 0x3424)}};
}

// The rest of float16, and the upper eight bits of it, as rest bytes.
__device__ __forceinline__ uint32_t upper_rest_of(const Rest& float16_rest) {
  return device::select_bits(device::bytes4(0xe0), float16_rest.bits << 5, float16_rest.bytes >> 3);
}
__device__ __forceinline__ Rest float16_rest_of(uint32_t upper_rest) {
  return {upper_rest << 3 & device::bytes4(0xf8), upper_rest >> 5 & device::bytes4(0x7), {}};
}

// The upper and the lower halves of four words.
__device__ __forceinline__ Heads upper_halves(const uint4& four) {
  return {{__byte_perm(four.x, four.y, 0x7632), __byte_perm(four.z, four.w, 0x7632)}};
}
__device__ __forceinline__ uint2 lower_halves(const uint4& four) {
  return {__byte_perm(four.x, four.y, 0x5410), __byte_perm(four.z, four.w, 0x5410)};
}

// A float32 with the sign and the upper mantissa bits of a float64. Its exponent is undefined.
__device__ __forceinline__ uint32_t narrowed(uint32_t low, uint32_t high) {
  return device::select_bits(0x007fffff, __funnelshift_r(low, high, 29), high);
}
// Two float64 from their heads and from rest byte and tail of float32, each in the two halves of a word.
__device__ __forceinline__ uint4 widened(uint32_t heads, uint32_t rest_bytes, uint32_t tails) {
  const uint32_t below_heads = (tails >> 3 & device::halves2(0x1fff)) | (rest_bytes & device::halves2(0x7)) << 13;
  return {tails << 29, __byte_perm(below_heads, heads, 0x5410), tails >> 16 << 29,
          __byte_perm(below_heads, heads, 0x7632)};
}

// Joins codes (exponent minus base), the base and the rest into heads.
template <ValueType Type>
__device__ __forceinline__ Heads heads_of(uint32_t codes, uint32_t base, uint32_t rest_bytes, uint32_t rest_bits) {
  using device::bytes4;
  if constexpr (Type.exponent_bits > 8) {
    Heads heads;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t exponent = __byte_perm(codes, 0, i == 0 ? 0x4140 : 0x4342) + device::halves2(base);
      const uint32_t rest = __byte_perm(rest_bits, 0, i == 0 ? 0x4140 : 0x4342);
      heads.pair[i] = exponent << 4 | (rest & device::halves2(0xf)) | (rest << 11 & device::halves2(0x8000));
    }
    return heads;
  } else {
    const uint32_t exponents = codes + bytes4(base);
    uint32_t high, low = rest_bytes;
    if constexpr (Type.rest_bits == 0) {
      high = device::select_bits(bytes4(0x80), rest_bytes, exponents >> 1);
      low = device::select_bits(bytes4(0x80), exponents << 7, rest_bytes);
    } else {
      constexpr int mantissa = Type.rest_bits - 1;
      high = (rest_bits << (7 - mantissa) & bytes4(0x80)) | exponents << mantissa;
      // opaque() keeps the order, in which each step is one instruction.
      high = device::opaque(high) | (rest_bits & bytes4((1u << mantissa) - 1));
    }
    if constexpr (Type.value_bytes == 1) return {{high, 0}};  // all four values are in one word
    return {{__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)}};
  }
}

// Position of a value's exponent: the bits of `mask` from bit `shift` up in the unsigned Head that follows the tail.
template <ValueType Type>
struct ExponentField {
  using Head = std::conditional_t<Type.value_bytes == 1, uint8_t, uint16_t>;
  static constexpr int shift = Type.value_bytes == 1 ? Type.mantissa_bits() : 15 - Type.exponent_bits;
  static constexpr uint32_t mask = (1u << Type.exponent_bits) - 1;
};

template <ValueType Type>
__device__ __forceinline__ uint32_t exponent_at(const char* value) {
  using Field = ExponentField<Type>;
  const auto head = *reinterpret_cast<const typename Field::Head*>(value + Type.tail_bytes);
  return static_cast<uint32_t>(head) >> Field::shift & Field::mask;
}

}  // namespace narrowcast::codec::window
