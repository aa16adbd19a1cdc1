// Values for the tests, and slow conversions that share no code with src/executor/host/convert.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "narrowcast/types.h"

namespace narrowcast::testing {

inline constexpr ncast_dtype all_dtypes[] = {NCAST_INT8,    NCAST_UINT8,    NCAST_INT32,       NCAST_UINT32,
                                             NCAST_INT64,   NCAST_UINT64,   NCAST_FLOAT16,     NCAST_FLOAT32,
                                             NCAST_FLOAT64, NCAST_BFLOAT16, NCAST_FLOAT8_E4M3, NCAST_FLOAT8_E5M2};

// A narrow floating-point format and its definition.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t largest_finite() const {
    return has_infinity ? (((1u << exponent_bits) - 1) << mantissa_bits) - 1 : sign_bit() - 2;
  }

  double value(uint32_t bits) const {
    const double sign = (bits & sign_bit()) != 0 ? -1 : 1;
    const uint32_t magnitude = bits & (sign_bit() - 1);
    if (magnitude > largest_finite()) {
      return has_infinity && magnitude == largest_finite() + 1 ? sign * std::numeric_limits<double>::infinity()
                                                               : std::numeric_limits<double>::quiet_NaN();
    }
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const double mantissa = magnitude & ((1u << mantissa_bits) - 1);
    const double one = 1u << mantissa_bits;
    return sign *
           (exponent == 0 ? std::ldexp(mantissa / one, 1 - bias()) : std::ldexp(1 + mantissa / one, exponent - bias()));
  }

  // Rounds to nearest, ties to even. `number` must not be NaN.
  uint32_t round(float number) const {
    const uint32_t sign = std::signbit(number) ? sign_bit() : 0;
    const double magnitude = std::fabs(static_cast<double>(number));
    const uint32_t too_large = largest_finite() + 1;  // infinity, or e4m3's NaN
    if (!(magnitude < std::numeric_limits<double>::infinity())) return sign | too_large;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    --exponent;  // magnitude = 1.x * 2^exponent
    if (magnitude == 0 || exponent < 1 - bias()) exponent = 1 - bias();
    // The magnitude in units of the last place, rounded: an integer of at most mantissa_bits + 1 bits, or the next
    // power of two.
    const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
    const auto bits = static_cast<int64_t>(units) + ((static_cast<int64_t>(exponent + bias()) - 1) << mantissa_bits);
    return sign | (bits > static_cast<int64_t>(largest_finite()) ? too_large : static_cast<uint32_t>(bits));
  }
};

inline constexpr Format float16_format = {5, 10, true};
inline constexpr Format bfloat16_format = {8, 7, true};
inline constexpr Format float8_e4m3_format = {4, 3, false};
inline constexpr Format float8_e5m2_format = {5, 2, true};

inline const Format* format_of(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_FLOAT16: return &float16_format;
    case NCAST_BFLOAT16: return &bfloat16_format;
    case NCAST_FLOAT8_E4M3: return &float8_e4m3_format;
    case NCAST_FLOAT8_E5M2: return &float8_e5m2_format;
    default: return nullptr;
  }
}

using Bytes = std::vector<unsigned char>;

template <typename T>
T load(const Bytes& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}
template <typename T>
void store(Bytes& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

// A value of a floating-point type; NaN for other types.
inline double float_at(ncast_dtype dtype, const Bytes& bytes, size_t index) {
  if (dtype == NCAST_FLOAT32) return load<float>(bytes, index);
  if (dtype == NCAST_FLOAT64) return load<double>(bytes, index);
  const Format* format = format_of(dtype);
  if (format == nullptr) return std::numeric_limits<double>::quiet_NaN();
  return format->value(ncast_dtype_bytes(dtype) == 1 ? load<uint8_t>(bytes, index) : load<uint16_t>(bytes, index));
}
inline bool is_float(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT32 || dtype == NCAST_FLOAT64 || format_of(dtype) != nullptr;
}
inline bool is_nan(ncast_dtype dtype, const Bytes& bytes, size_t index) {
  return is_float(dtype) && std::isnan(float_at(dtype, bytes, index));
}

// Half of the values are like those of tensors, so that a codec has something to shrink; the others are any bits.
inline Bytes random_values(ncast_dtype dtype, size_t elems, uint64_t seed) {
  const size_t value_bytes = ncast_dtype_bytes(dtype);
  Bytes bytes(elems * value_bytes);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < elems; ++i) {
    uint64_t bits = random();
    if ((i / 3000) % 2 == 0) {
      const float number = normal(random);
      const double wide = number;
      if (const Format* format = format_of(dtype)) bits = format->round(number);
      if (dtype == NCAST_FLOAT32) std::memcpy(&bits, &number, sizeof number);
      if (dtype == NCAST_FLOAT64) std::memcpy(&bits, &wide, sizeof wide);
    }
    std::memcpy(bytes.data() + i * value_bytes, &bits, value_bytes);
  }
  return bytes;
}

}  // namespace narrowcast::testing
