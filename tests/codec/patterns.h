// Values for the tests of `window`, made from exponents, because those are what it looks at.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "buffers.h"
#include "codec/window/format.h"

namespace narrowcast::tests {

using codec::window::ValueType;

struct NamedType {
  const char* name;
  ncast_dtype dtype;
  ValueType type;
};
inline constexpr std::array<NamedType, 6> window_types = {
    {{"bfloat16", NCAST_BFLOAT16, codec::window::bfloat16},
     {"float16", NCAST_FLOAT16, codec::window::float16},
     {"float32", NCAST_FLOAT32, codec::window::float32},
     {"float64", NCAST_FLOAT64, codec::window::float64},
     {"float8_e4m3", NCAST_FLOAT8_E4M3, codec::window::float8_e4m3},
     {"float8_e5m2", NCAST_FLOAT8_E5M2, codec::window::float8_e5m2}}};

inline void put_bits(const ValueType& type, uint64_t bits, uint8_t* values, int index) {
  std::memcpy(values + index * type.value_bytes, &bits, static_cast<size_t>(type.value_bytes));
}

// A value of the given exponent; sign and mantissa at random.
inline uint64_t bits_of_exponent(const ValueType& type, int exponent, Random& random) {
  const int total = 8 * type.value_bytes;
  const int mantissa = total - 1 - type.exponent_bits;
  const uint64_t all = total == 64 ? ~uint64_t{0} : (uint64_t{1} << total) - 1;
  const uint64_t field = ((uint64_t{1} << type.exponent_bits) - 1) << mantissa;
  return (random.bits() & all & ~field) | (static_cast<uint64_t>(exponent) << mantissa & field);
}

// The value without its low mantissa bits: `kept` bits of the mantissa are left.
inline uint64_t without_low_bits(const ValueType& type, uint64_t bits, int kept) {
  const int low_bits = std::max(8 * type.value_bytes - 1 - type.exponent_bits - kept, 0);
  return bits >> low_bits << low_bits;
}

inline constexpr std::array<const char*, 21> pattern_names = {"bell",
                                                              "uniform",
                                                              "two clusters",
                                                              "ramp",
                                                              "zeros among values",
                                                              "mostly zeros",
                                                              "all equal",
                                                              "one outlier",
                                                              "edges",
                                                              "edges, low",
                                                              "edges, high",
                                                              "only samples fit",
                                                              "denormals",
                                                              "infinities",
                                                              "alternate far",
                                                              "narrow",
                                                              "bfloat16 mantissas",
                                                              "float16 mantissas",
                                                              "float32 mantissas",
                                                              "one long mantissa",
                                                              "bfloat16 mantissas, uniform"};

// A block of the named kind. Where the kind needs a place for its centre, it is random.
inline Bytes make_block(const ValueType& type, int pattern, Random& random) {
  const int exponents = 1 << type.exponent_bits;
  const int n = type.block_elems();
  Bytes block(static_cast<size_t>(type.block_bytes()));
  const int centre = random.below(exponents), other = random.below(exponents), outlier = random.below(n);
  const int reach = (1 << (1 + random.below(type.max_width()))) - 1;
  const auto wrap = [&](int exponent) { return ((exponent % exponents) + exponents) % exponents; };
  const auto bell = [&] { return centre - std::countr_zero(random.bits() | 1u << 20) + (random.chance(0.2) ? 1 : 0); };
  // Around a window at `base`: mostly inside, else from eleven below it to five above.
  const auto edges = [&](int base) {
    return random.chance(0.85) ? base + random.below(reach) : base - 11 + random.below(reach + 17);
  };
  for (int i = 0; i < n; ++i) {
    int exponent = 0;
    switch (pattern) {
      case 0: exponent = bell(); break;
      case 1: exponent = random.below(exponents); break;
      case 2: exponent = (random.chance(0.5) ? centre : other) + random.below(2); break;
      case 3: exponent = i * exponents / n; break;
      case 4: exponent = random.chance(0.3) ? 0 : bell(); break;
      case 5: exponent = random.chance(0.9) ? 0 : bell(); break;
      case 6: exponent = centre; break;
      case 7: exponent = i == outlier ? other : centre; break;
      case 8: exponent = edges(centre); break;
      case 9: exponent = edges(0); break;
      case 10: exponent = edges(exponents - 1 - reach); break;
      case 11: {
        // The encoder samples four diagonals; whatever it places there, the rest lies far away.
        const int quarter = n / codec::window::samples_per_lane, at = i % quarter, diagonal = i / quarter;
        const int lane = at / type.vector_elems(), within = at % type.vector_elems();
        const bool sampled = lane < codec::window::lanes && within == (lane + diagonal) % type.vector_elems();
        exponent = sampled || random.chance(0.3) ? centre : other;
        break;
      }
      case 12: exponent = random.chance(0.7) ? 0 : random.below(4); break;
      case 13: exponent = random.chance(0.3) ? exponents - 1 : bell(); break;
      case 14: exponent = i % 5 == 0 ? centre : centre + 1 + i % 2; break;
      case 15: exponent = centre + random.below(3); break;
      case 20: exponent = random.below(exponents); break;
      default: exponent = bell(); break;
    }
    uint64_t bits = bits_of_exponent(type, wrap(exponent), random);
    if (pattern == 17 || pattern == 18) bits = without_low_bits(type, bits, pattern == 17 ? 10 : 23);
    if (pattern == 16 || pattern >= 19) bits = without_low_bits(type, bits, 7);
    if (pattern == 19 && i == outlier) bits |= uint64_t{1} << random.below(8 * type.value_bytes - 1);
    put_bits(type, bits, block.data(), i);
  }
  return block;
}

}  // namespace narrowcast::tests
