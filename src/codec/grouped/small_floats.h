// Floats of 16 bits and fewer on the host: conversions of the value types, and of elements and scales.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "codec/grouped/format.h"

namespace narrowcast::codec::grouped {

inline constexpr uint32_t sign_bit = 0x80000000, nan_bits = 0x7fffffff;

constexpr float largest_value(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT16 ? 65504 : dtype == NCAST_BFLOAT16 ? 0x1.fep127f : 0x1.fffffep127f;
}

// The magnitude code of `magnitude`, which is at most the largest: to nearest, ties to even, or, if `random` is not
// negative, rounded up if that many units of 2^-random_bits suffice.
inline uint32_t small_float_code(const SmallFloat& format, float magnitude, int32_t random, int bits_of_random) {
  const int exponent = magnitude == 0 ? format.least_exponent : std::max(std::ilogb(magnitude), format.least_exponent);
  const double steps = std::ldexp(double{magnitude}, format.mantissa_bits - exponent);
  const auto rounded = random < 0 ? static_cast<uint32_t>(std::nearbyint(steps))
                                  : (static_cast<uint32_t>(std::nearbyint(std::ldexp(steps, bits_of_random))) +
                                     static_cast<uint32_t>(random)) >>
                                        bits_of_random;
  // With the implicit bit of normal numbers, `rounded` adds 1 to the exponent.
  return (static_cast<uint32_t>(exponent - format.least_exponent) << format.mantissa_bits) + rounded;
}
inline float small_float_value(const SmallFloat& format, uint32_t code) {
  const uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1), exponent = code >> format.mantissa_bits;
  const uint32_t implicit = exponent == 0 ? 0 : 1u << format.mantissa_bits;
  return std::ldexp(static_cast<float>(mantissa | implicit),
                    static_cast<int>(std::max(exponent, 1u)) - 1 + format.least_exponent - format.mantissa_bits);
}

inline constexpr SmallFloat half_format{10, -14, 15, 65504, 0x7bff};

// The float32 of a value of a type.
inline float value_of(ncast_dtype dtype, uint32_t bits) {
  if (dtype == NCAST_FLOAT32) return std::bit_cast<float>(bits);
  if (dtype == NCAST_BFLOAT16) return std::bit_cast<float>(bits << 16);
  const uint32_t magnitude = bits & 0x7fff, sign = bits >> 15 << 31;
  const float value = magnitude > 0x7c00    ? NAN
                      : magnitude == 0x7c00 ? INFINITY
                                            : small_float_value(half_format, magnitude);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
// The nearest value of a type, ties to even. Its magnitude is at most the largest, or not finite. A NaN has all bits
// set but the sign, as GPUs make it.
inline uint32_t bits_of_value(ncast_dtype dtype, float value) {
  const uint32_t bits = std::isnan(value) ? nan_bits : std::bit_cast<uint32_t>(value);
  if (dtype == NCAST_FLOAT32) return bits;
  const uint32_t sign = bits >> 31 << 15;
  if (std::isnan(value)) return 0x7fff;
  if (dtype == NCAST_BFLOAT16) return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return sign | (std::isinf(value) ? 0x7c00 : small_float_code(half_format, std::abs(value), -1, 0));
}

}  // namespace narrowcast::codec::grouped
