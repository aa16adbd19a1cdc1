// Conversions between narrow floating-point types and fp32. They assume that the rounding mode is round to nearest
// even. Subnormals are converted correctly even if the host flushes fp32 subnormals to zero.
//
//   to_float      exact; keeps the sign and payload of a NaN.
//   from_float    rounds to nearest, ties to even. A NaN stays a NaN and keeps its sign. Values that are too large
//                 become infinity. float8_e4m3 (OCP e4m3fn) has no infinity: there, too large values and infinity
//                 become NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace narrowcast::executor::host {

// A format of `1 + exponent_bits + mantissa_bits` bits, with subnormals as in IEEE 754.
template <typename BitsType, int exponent_bits_, int mantissa_bits_, bool has_infinity_>
struct NarrowFloat {
  using Bits = BitsType;
  static constexpr int exponent_bits = exponent_bits_;
  static constexpr int mantissa_bits = mantissa_bits_;
  static constexpr bool has_infinity = has_infinity_;
  Bits bits;
};

using Float16 = NarrowFloat<uint16_t, 5, 10, true>;
using BFloat16 = NarrowFloat<uint16_t, 8, 7, true>;
using Float8E4M3 = NarrowFloat<uint8_t, 4, 3, false>;
using Float8E5M2 = NarrowFloat<uint8_t, 5, 2, true>;

template <typename Narrow>
inline float to_float(Narrow value) {
  constexpr int shift = 23 - Narrow::mantissa_bits;
  constexpr int sign_bit = Narrow::exponent_bits + Narrow::mantissa_bits;
  constexpr uint32_t magnitude_mask = (1u << sign_bit) - 1;
  const uint32_t magnitude = (value.bits & magnitude_mask) << shift;
  const uint32_t sign = static_cast<uint32_t>(value.bits >> sign_bit) << 31;
  if constexpr (Narrow::exponent_bits == 8) {
    return std::bit_cast<float>(sign | magnitude);
  } else {
    constexpr uint32_t bias_difference = 127 - ((1 << (Narrow::exponent_bits - 1)) - 1);
    constexpr uint32_t top_exponent = ((1u << Narrow::exponent_bits) - 1) << 23;
    const uint32_t exponent = magnitude & top_exponent;
    const uint32_t normal = magnitude + (bias_difference << 23);
    // A subnormal: give it the exponent of the smallest normal number, then subtract that number. Both are normal in
    // fp32, so the subtraction is exact even if the host flushes fp32 subnormals.
    constexpr uint32_t least_normal = (bias_difference + 1) << 23;
    const float subnormal = std::bit_cast<float>(magnitude + least_normal) - std::bit_cast<float>(least_normal);
    bool special = exponent == top_exponent;
    uint32_t special_bits = magnitude | 0x7f800000u;
    if constexpr (!Narrow::has_infinity) {
      special = magnitude == magnitude_mask << shift;  // the one NaN
      special_bits = 0x7fc00000u;
    }
    const uint32_t finite = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
    return std::bit_cast<float>(sign | (special ? special_bits : finite));
  }
}

template <typename Narrow>
inline Narrow from_float(float value) {
  using Bits = typename Narrow::Bits;
  constexpr int shift = 23 - Narrow::mantissa_bits;
  constexpr int sign_bit = Narrow::exponent_bits + Narrow::mantissa_bits;
  constexpr int bias = (1 << (Narrow::exponent_bits - 1)) - 1;
  constexpr uint32_t infinity = ((1u << Narrow::exponent_bits) - 1) << Narrow::mantissa_bits;
  constexpr uint32_t all_ones = (1u << sign_bit) - 1;
  constexpr uint32_t quiet = 1u << (Narrow::mantissa_bits - 1);
  constexpr uint32_t payload_mask = (1u << Narrow::mantissa_bits) - 1;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 31 << sign_bit;
  uint32_t narrow;
  if (magnitude > 0x7f800000u) {
    narrow = Narrow::has_infinity ? infinity | quiet | ((magnitude >> shift) & payload_mask) : all_ones;
  } else {
    // To round ties to even, add just under half of the last kept bit, or exactly half if that bit is odd. A carry into
    // the exponent yields the correct result.
    const uint32_t odd = (magnitude >> shift) & 1;
    constexpr uint32_t rebias = static_cast<uint32_t>(127 - bias) << 23;
    constexpr uint32_t under_half = (1u << (shift - 1)) - 1;
    const uint32_t normal = (magnitude - rebias + under_half + odd) >> shift;
    uint32_t subnormal = 0;
    constexpr uint32_t least_normal = static_cast<uint32_t>(127 - bias + 1) << 23;
    if constexpr (Narrow::exponent_bits < 8) {
      // The last bit of the anchor has the weight of the narrow format's last subnormal bit, so the sum is rounded at
      // that bit.
      constexpr uint32_t anchor = static_cast<uint32_t>(127 - bias + 1 + shift) << 23;
      const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(anchor);
      subnormal = std::bit_cast<uint32_t>(sum) - anchor;
    }
    narrow = Narrow::exponent_bits < 8 && magnitude < least_normal ? subnormal : normal;
    constexpr uint32_t overflow = Narrow::has_infinity ? infinity : all_ones;
    // The arithmetic above is not valid for magnitudes of 2^(largest exponent + 1) or more.
    constexpr uint32_t too_large = static_cast<uint32_t>(127 + bias + (Narrow::has_infinity ? 1 : 2)) << 23;
    if (magnitude >= too_large || narrow > overflow) narrow = overflow;
  }
  return {static_cast<Bits>(sign | narrow)};
}

}  // namespace narrowcast::executor::host
