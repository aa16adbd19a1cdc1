// Constants of the codecs that quantise groups of values. The specification is docs/format/grouped.md.
#pragma once

#include <cstdint>

#include "../parameter.h"
#include "narrowcast/types.h"

namespace narrowcast::codec::grouped {

inline constexpr uint32_t block_bytes = 4096;  // of values, of every type
inline constexpr uint32_t chunk_elems = 8;     // adjacent values that share random numbers

// Stochastic rounding counts 2^-random_bits of a step.
inline constexpr uint32_t random_bits = 14;

// What a value becomes.
enum class Element : uint8_t { int8, uint8, int6, int4, int2, e4m3, e5m2, e2m3, e3m2, e2m1 };
// How a group's scale is stored.
enum class Scale : uint8_t {
  bfloat16,           // 2 bytes
  bfloat16_and_zero,  // 2 bytes; in a further section the least value of each group, in the value type
  float32,            // 4 bytes
  e8m0,               // a byte: the exponent of a power of two
  e4m3,               // a byte; one float32 for the block
};

// A float of `exponent_bits` and `mantissa_bits`. least_exponent: of normal numbers.
struct SmallFloat {
  int mantissa_bits, least_exponent, largest_exponent;
  float largest;
  uint32_t largest_code;
};
constexpr SmallFloat small_float(Element element) {
  switch (element) {
    case Element::e4m3: return {3, -6, 8, 448, 0x7e};
    case Element::e5m2: return {2, -14, 15, 57344, 0x7b};
    case Element::e2m3: return {3, 0, 2, 7.5f, 0x1f};
    case Element::e3m2: return {2, -2, 4, 28, 0x1f};
    default: return {1, 0, 2, 6, 0x7};  // e2m1
  }
}

constexpr bool is_integer(Element element) { return element <= Element::int2; }
constexpr uint32_t bits_of(Element element) {
  switch (element) {
    case Element::int6:
    case Element::e2m3:
    case Element::e3m2: return 6;
    case Element::int4:
    case Element::e2m1: return 4;
    case Element::int2: return 2;
    default: return 8;
  }
}
// The largest code of integers.
constexpr int largest_code(Element element) {
  return element == Element::uint8 ? 255 : (1 << (bits_of(element) - 1)) - 1;
}

// A codec of this family with its parameters.
struct Coding {
  Element element;
  Scale scale;
  uint32_t group;      // values
  uint32_t rotate;     // values that are rotated together; 1: none
  bool is_stochastic;  // how values are rounded
  uint32_t seed;

  // Values whose groups are all rotated or all not.
  constexpr uint32_t unit() const { return group > rotate ? group : rotate; }

  // Offsets of the sections in the payload of a block of `elems` values, in bytes.
  constexpr uint32_t upper_plane(uint32_t elems) const { return elems / 2; }  // of int6
  constexpr uint32_t scales(uint32_t elems) const { return elems * bits_of(element) / 8; }
  constexpr uint32_t scale_bytes() const {
    return scale == Scale::float32 ? 4 : scale == Scale::e8m0 || scale == Scale::e4m3 ? 1 : 2;
  }
  // The zeros of the groups, or the scale of the block.
  constexpr uint32_t second_scales(uint32_t elems) const { return scales(elems) + elems / group * scale_bytes(); }
  constexpr uint32_t payload_bytes(uint32_t elems) const {
    const uint32_t zero_bytes = block_bytes / elems;
    return second_scales(elems) + (scale == Scale::bfloat16_and_zero ? elems / group * zero_bytes
                                   : scale == Scale::e4m3            ? 16
                                                                     : 0);
  }
};

// A Coding in one word, for kernels: they know it once, and pass it to the functions for blocks.
struct PackedCoding {
  uint32_t word;

  constexpr explicit PackedCoding(const Coding& coding)
      : word(static_cast<uint32_t>(coding.element) | static_cast<uint32_t>(coding.scale) << 4 |
             log2_of(coding.group) << 8 | log2_of(coding.rotate) << 12 | uint32_t{coding.is_stochastic} << 15 |
             coding.seed << 16) {}
  constexpr Element element() const { return static_cast<Element>(word & 15); }
  constexpr Coding coding() const {
    return {element(),
            static_cast<Scale>(word >> 4 & 15),
            1u << (word >> 8 & 15),
            1u << (word >> 12 & 7),
            (word >> 15 & 1) != 0,
            word >> 16};
  }

 private:
  static constexpr uint32_t log2_of(uint32_t power) {
    uint32_t exponent = 0;
    for (; power > 1; power /= 2) ++exponent;
    return exponent;
  }
};

// The parameters of the rows of codecs.def, in their order, begin here.
inline constexpr uint32_t parameters_shift = 16;

// codec: its parameters are explicit.
constexpr Coding coding_of(ncast_codec codec) {
  uint32_t shift = parameters_shift;
  const auto byte = [&] { return get(codec, {(shift += 8) - 8, 8}); };
  const auto power = [&] { return 1u << ((byte() - 1) & 31); };
  Coding coding{Element::int8, Scale::bfloat16, 32, 1, false, 0};
  const auto rotated = [&](Element element) {
    coding.element = element;
    coding.group = power();
    coding.rotate = power();
  };
  const auto scaled = [&](Element element, Scale scale) {
    coding.element = element;
    coding.scale = scale;
    coding.group = power();
  };
  switch (codec & 0xff) {
    case NCAST_CODEC_INT8: rotated(Element::int8); break;
    case NCAST_CODEC_INT8A: scaled(Element::uint8, Scale::bfloat16_and_zero); break;
    case NCAST_CODEC_INT6: rotated(Element::int6); break;
    case NCAST_CODEC_INT4: rotated(Element::int4); break;
    case NCAST_CODEC_INT2: rotated(Element::int2); break;
    case NCAST_CODEC_E4M3: scaled(Element::e4m3, Scale::float32); break;
    case NCAST_CODEC_E5M2: scaled(Element::e5m2, Scale::float32); break;
    case NCAST_CODEC_MXFP8:
      coding.scale = Scale::e8m0;
      coding.element = byte() == 1 ? Element::e4m3 : Element::e5m2;
      break;
    case NCAST_CODEC_MXFP6:
      coding.scale = Scale::e8m0;
      coding.element = byte() == 1 ? Element::e2m3 : Element::e3m2;
      break;
    case NCAST_CODEC_MXFP4:
      coding.scale = Scale::e8m0;
      coding.element = Element::e2m1;
      break;
    default:  // nvfp4
      coding.scale = Scale::e4m3;
      coding.element = Element::e2m1;
      coding.group = 16;
  }
  coding.is_stochastic = byte() == 2;
  coding.seed = get(codec, {shift, 16});
  return coding;
}

// Scales of integers and of e4m3 and e5m2 are normal numbers, so that their reciprocals are finite.
inline constexpr float least_scale = 0x1p-126f;
// A bfloat16 scale with its sign bit set: the codes of the group are those of unrotated values, and those of its values
// that are not finite are the special code. The lowest two bits of the scale say what it means.
inline constexpr uint32_t special_scale = 0x8000;
enum : uint32_t { special_is_nan, special_is_infinity, special_is_minus_infinity, special_is_unused };
// The least magnitude whose unit is not rotated, because sums could overflow.
inline constexpr float least_unrotated = 0x1p118f;
// A float32 scale with its sign bit set: elements that would be NaN are infinite. Only of e4m3.
inline constexpr uint32_t infinite_scale = 0x80000000;
// E8M0, and the e4m3 scale of a group: the values of the group are NaN.
inline constexpr uint32_t e8m0_nan = 0xff;
inline constexpr uint32_t e4m3_nan = 0x7f;
// Of a block's float32 scale, so that the product with the least e4m3 is a normal number.
inline constexpr float least_block_scale = 0x1p-110f;

// The factor 1 / sqrt(values) of a rotation.
constexpr float rotation_factor(uint32_t values) {
  constexpr float root_of_half = 0x1.6a09e6p-1f;
  float factor = 1;
  for (; values >= 4; values /= 4) factor *= 0.5f;
  return values == 2 ? factor * root_of_half : factor;
}
// 1 / most, rounded up. most: the largest quantised magnitude.
constexpr float reciprocal_rounded_up(float most) {
  const float nearest = 1 / most;
  return static_cast<double>(nearest) * most < 1 ? nearest * (1 + 0x1p-23f) : nearest;
}

}  // namespace narrowcast::codec::grouped
