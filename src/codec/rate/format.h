// Constants of the codec `rate`. The specification is docs/format/rate.md.
#pragma once

#include <cstdint>

#include "../parameter.h"
#include "narrowcast/types.h"

namespace narrowcast::codec::rate {

inline constexpr uint32_t block_bytes = 4096;  // of values, of every type
inline constexpr uint32_t quad_elems = 4;      // values that are transformed together

// A value type: its bits, and what the integers of a quad have.
struct ValueType {
  uint32_t bits, exponent_bits;

  constexpr uint32_t value_bytes() const { return bits / 8; }
  constexpr uint32_t mantissa_bits() const { return bits - 1 - exponent_bits; }
  constexpr uint32_t special_exponent() const { return (1u << exponent_bits) - 1; }
  constexpr uint32_t block_elems() const { return block_bytes / value_bytes(); }
  constexpr uint32_t quads() const { return block_elems() / quad_elems; }
  // The mantissa of the largest value of a quad is shifted left by this, which leaves two bits for sums and the sign.
  constexpr uint32_t mantissa_shift() const { return bits - 2 - (mantissa_bits() + 1); }
};
inline constexpr ValueType float32{32, 8}, float64{64, 11};

// bits is 0 if the codec does not support the type.
constexpr ValueType value_type(ncast_dtype dtype) {
  return dtype == NCAST_FLOAT32 ? float32 : dtype == NCAST_FLOAT64 ? float64 : ValueType{0, 0};
}

// The bits of a quad are in words, then in the largest units that they fill. A section has the units of all quads.
struct Rate {
  uint32_t bits;  // of a value

  // codec: its parameters are explicit.
  constexpr explicit Rate(ncast_codec codec) : bits(get(codec, {16, 16})) {}
  constexpr uint32_t quad_bits() const { return quad_elems * bits; }
  constexpr uint32_t words() const { return bits / 8; }
  constexpr bool has_half() const { return (bits & 4) != 0; }
  constexpr bool has_byte() const { return (bits & 2) != 0; }
  constexpr bool has_nibble() const { return (bits & 1) != 0; }
  // Offsets of the sections.
  constexpr uint32_t halves(uint32_t quads) const { return words() * 4 * quads; }
  constexpr uint32_t bytes(uint32_t quads) const { return halves(quads) + (has_half() ? 2 * quads : 0); }
  constexpr uint32_t nibbles(uint32_t quads) const { return bytes(quads) + (has_byte() ? quads : 0); }
  constexpr uint32_t payload_bytes(uint32_t quads) const { return quad_bits() * quads / 8; }

  // The bits of each value of a quad with values that are not finite; 0: too few for them.
  constexpr uint32_t special_bits(ValueType type) const {
    const uint32_t each = (quad_bits() - 2 * type.exponent_bits) / quad_elems;
    return each < 3 ? 0 : each;
  }
};

}  // namespace narrowcast::codec::rate
