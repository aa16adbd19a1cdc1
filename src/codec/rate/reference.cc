// The transform and the coding of bit planes are those of zfp (Lindstrom, "Fixed-Rate Compressed Floating-Point
// Arrays", IEEE TVCG 20, 2014, and zfp's documentation of its algorithm).
#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstring>
#include <limits>
#include <type_traits>

#include "codec/rate/block.h"
#include "codec/rate/format.h"

namespace narrowcast::codec::rate {
namespace {

template <typename Float>
constexpr ValueType type_of = sizeof(Float) == 4 ? float32 : float64;
template <typename Float>
using UnsignedOf = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
template <typename Float>
using Values = std::array<Float, quad_elems>;
template <typename Float>
using Integers = std::array<UnsignedOf<Float>, quad_elems>;  // in two's complement

// The bits of a quad. Reading stops at their end.
class BitString {
 public:
  explicit BitString(uint32_t size) : size_(size) {}
  bool is_at_end() const { return at_ == size_; }
  void put(bool bit) {
    if (!is_at_end()) bits_[at_++] = bit;
  }
  bool get() { return bits_[at_++]; }
  template <typename Number>
  void put(Number number, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) put((number >> i & 1) != 0);
  }
  template <typename Number>
  Number get(uint32_t count) {
    Number number = 0;
    for (uint32_t i = 0; i < count; ++i) number |= Number{get()} << i;
    return number;
  }
  // Single bits, wherever reading and writing stand.
  auto operator[](uint32_t place) { return bits_[place]; }

 private:
  std::bitset<128> bits_;
  uint32_t size_, at_ = 0;
};

// Calls move(place in the string, byte of the payload, bit of the byte) for every bit of quad number `quad`.
template <typename Move>
void for_each_bit(Rate rate, uint32_t quads, uint32_t quad, Move move) {
  uint32_t place = 0;
  const auto piece = [&](uint32_t section, uint32_t piece_bits) {
    for (uint32_t bit = quad * piece_bits; bit < (quad + 1) * piece_bits; ++bit)
      move(place++, section + bit / 8, bit % 8);
  };
  for (uint32_t word = 0; word < rate.words(); ++word) piece(word * 4 * quads, 32);
  if (rate.has_half()) piece(rate.halves(quads), 16);
  if (rate.has_byte()) piece(rate.bytes(quads), 8);
  if (rate.has_nibble()) piece(rate.nibbles(quads), 4);
}

template <typename Unsigned>
Unsigned half(Unsigned number) {
  return static_cast<Unsigned>(static_cast<std::make_signed_t<Unsigned>>(number) >> 1);
}
template <typename Unsigned>
void transform(std::array<Unsigned, quad_elems>& integers) {
  auto& [x, y, z, w] = integers;
  x = half(x + w), w -= x;
  z = half(z + y), y -= z;
  x = half(x + z), z -= x;
  w = half(w + y), y -= w;
  w += half(y), y -= half(w);
}
template <typename Unsigned>
void inverse_transform(std::array<Unsigned, quad_elems>& integers) {
  auto& [x, y, z, w] = integers;
  y += half(w), w -= half(y);
  y += w, w = 2 * w - y;
  z += x, x = 2 * x - z;
  y += z, z = 2 * z - y;
  w += x, x = 2 * x - w;
}

// Digits of base -2.
template <typename Unsigned>
constexpr Unsigned odd_bits = static_cast<Unsigned>(0xaaaaaaaaaaaaaaaa);
template <typename Unsigned>
Unsigned negabinary(Unsigned number) {
  return (number + odd_bits<Unsigned>)^odd_bits<Unsigned>;
}
template <typename Unsigned>
Unsigned number_of(Unsigned digits) {
  return (digits ^ odd_bits<Unsigned>)-odd_bits<Unsigned>;
}

template <typename Unsigned>
void put_planes(const std::array<Unsigned, quad_elems>& digits, BitString& to) {
  uint32_t active = 0;  // numbers that have had a one
  for (uint32_t plane = 8 * sizeof(Unsigned); plane-- > 0;) {
    const auto bit = [&](uint32_t i) { return (digits[i] >> plane & 1) != 0; };
    for (uint32_t i = 0; i < active; ++i) to.put(bit(i));
    while (active < quad_elems) {
      bool more = false;
      for (uint32_t i = active; i < quad_elems; ++i) more |= bit(i);
      to.put(more);
      if (!more) break;
      for (; !bit(active); ++active) to.put(false);
      if (active < quad_elems - 1) to.put(true);
      ++active;
    }
  }
}
// Bits after the end of the string are not known, and 0 in the numbers.
template <typename Unsigned>
void get_planes(BitString& from, std::array<Unsigned, quad_elems>& digits) {
  uint32_t active = 0;
  for (uint32_t plane = 8 * sizeof(Unsigned); plane-- > 0;) {
    for (uint32_t i = 0; i < active; ++i) {
      if (from.is_at_end()) return;
      digits[i] |= Unsigned{from.get()} << plane;
    }
    while (active < quad_elems) {
      if (from.is_at_end()) return;
      if (!from.get()) break;
      for (; active < quad_elems - 1; ++active) {
        if (from.is_at_end()) return;
        if (from.get()) break;
      }
      digits[active++] |= Unsigned{1} << plane;
    }
  }
}

template <typename Float>
struct Quad {
  using Unsigned = UnsignedOf<Float>;
  static constexpr ValueType type = type_of<Float>;
  static constexpr uint32_t mantissa_bits = type.mantissa_bits();
  static constexpr Unsigned mantissa_mask = (Unsigned{1} << mantissa_bits) - 1;
  static constexpr Unsigned sign_bit = Unsigned{1} << (type.bits - 1);

  static uint32_t exponent_of(Unsigned bits) {
    return static_cast<uint32_t>(bits >> mantissa_bits & type.special_exponent());
  }

  static bool is_finite(Unsigned bits) { return exponent_of(bits) != type.special_exponent(); }
  static bool is_nan(Unsigned bits) { return !is_finite(bits) && (bits & mantissa_mask) != 0; }

  // The integer of a finite value.
  static Unsigned number_of_value(Unsigned bits, uint32_t exponent) {
    const uint32_t own = exponent_of(bits), shift = exponent - std::max(own, 1u);
    const Unsigned mantissa = (bits & mantissa_mask) + (own != 0 ? mantissa_mask + 1 : 0);
    const Unsigned number = shift < type.bits ? mantissa << type.mantissa_shift() >> shift : 0;
    return (bits & sign_bit) != 0 ? 0 - number : number;
  }

  // values: their bits.
  static BitString encoded(const Integers<Float>& values, Rate rate) {
    BitString string(rate.quad_bits());
    uint32_t exponent = 1;  // of the finite values
    bool is_zero = true, all_finite = true;
    for (const Unsigned bits : values) {
      if (is_finite(bits)) exponent = std::max(exponent, exponent_of(bits));
      is_zero = is_zero && (bits & ~sign_bit) == 0;
      all_finite = all_finite && is_finite(bits);
    }
    if (is_zero) return string;
    if (!all_finite) {
      string.put(type.special_exponent(), type.exponent_bits);
      const uint32_t each = rate.special_bits(type);
      if (each == 0) return string;
      string.put(exponent, type.exponent_bits);
      for (const Unsigned bits : values) string.put(special_code(bits, exponent, each), each);
      return string;
    }
    string.put(exponent, type.exponent_bits);
    Integers<Float> integers;
    for (uint32_t i = 0; i < quad_elems; ++i) integers[i] = number_of_value(values[i], exponent);
    transform(integers);
    for (Unsigned& number : integers) number = negabinary(number);
    put_planes(integers, string);
    return string;
  }
  // The upper bits of the integer, rounded. The least and the largest numbers stand for what is not finite.
  static Unsigned special_code(Unsigned bits, uint32_t exponent, uint32_t each) {
    const Unsigned top = Unsigned{1} << (each - 1);
    if (is_nan(bits)) return top;
    if (!is_finite(bits)) return (bits & sign_bit) != 0 ? top + 1 : top - 1;
    const uint32_t shift = type.bits - each;
    const Unsigned rounded = number_of_value(bits, exponent) + (Unsigned{1} << (shift - 1));
    return static_cast<Unsigned>(static_cast<std::make_signed_t<Unsigned>>(rounded) >> shift);
  }
  static Unsigned special_value(Unsigned code, uint32_t exponent, uint32_t each) {
    const Unsigned top = Unsigned{1} << (each - 1), infinity = Unsigned{type.special_exponent()} << mantissa_bits;
    if (code == top) return ~sign_bit;
    if (code == top - 1) return infinity;
    if (code == top + 1) return infinity | sign_bit;
    return std::bit_cast<Unsigned>(value_of(code << (type.bits - each), exponent));
  }

  static Integers<Float> decoded(BitString string, Rate rate) {
    Integers<Float> values = {};
    auto exponent = string.get<uint32_t>(type.exponent_bits);
    if (exponent == 0) return values;
    if (exponent == type.special_exponent()) {
      const uint32_t each = rate.special_bits(type);
      values.fill(~sign_bit);
      if (each == 0) return values;
      exponent = std::clamp(string.get<uint32_t>(type.exponent_bits), 1u, type.special_exponent() - 1);
      for (Unsigned& bits : values) bits = special_value(string.get<Unsigned>(each), exponent, each);
      return values;
    }
    get_planes(string, values);
    for (Unsigned& number : values) number = number_of(number);
    inverse_transform(values);
    for (Unsigned& number : values) number = std::bit_cast<Unsigned>(value_of(number, exponent));
    return values;
  }
  static Float value_of(Unsigned number, uint32_t exponent) {
    constexpr Float unit = sizeof(Float) == 4 ? Float(0x1p-29) : Float(0x1p-61);  // of exponent 0
    constexpr Float largest = std::numeric_limits<Float>::max();
    const auto integer = static_cast<std::make_signed_t<Unsigned>>(number);
    const Float power = std::bit_cast<Float>(Unsigned{exponent} << mantissa_bits);
    return std::clamp(static_cast<Float>(integer) * unit * power, -largest, largest);
  }
};

template <typename Float>
size_t encode(Rate rate, const uint8_t* values, uint8_t* payload) {
  constexpr uint32_t quads = type_of<Float>.quads();
  std::memset(payload, 0, rate.payload_bytes(quads));
  for (uint32_t quad = 0; quad < quads; ++quad) {
    Integers<Float> bits;
    std::memcpy(bits.data(), values + quad * sizeof bits, sizeof bits);
    BitString string = Quad<Float>::encoded(bits, rate);
    for_each_bit(rate, quads, quad, [&](uint32_t place, uint32_t byte, uint32_t bit) {
      payload[byte] |= static_cast<uint8_t>(uint32_t{string[place]} << bit);
    });
  }
  return rate.payload_bytes(quads);
}

template <typename Float>
bool decode(Rate rate, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  constexpr uint32_t quads = type_of<Float>.quads();
  if (payload_bytes != rate.payload_bytes(quads)) return false;
  for (uint32_t quad = 0; quad < quads; ++quad) {
    BitString string(rate.quad_bits());
    for_each_bit(rate, quads, quad,
                 [&](uint32_t place, uint32_t byte, uint32_t bit) { string[place] = (payload[byte] >> bit & 1) != 0; });
    const Integers<Float> bits = Quad<Float>::decoded(string, rate);
    std::memcpy(values + quad * sizeof bits, bits.data(), sizeof bits);
  }
  return true;
}

}  // namespace

const BlockCoder reference{[](const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
                             const Rate rate(type.codec);
                             return type.dtype == NCAST_FLOAT32 ? encode<float>(rate, values, payload)
                                                                : encode<double>(rate, values, payload);
                           },
                           [](const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
                             const Rate rate(type.codec);
                             return type.dtype == NCAST_FLOAT32 ? decode<float>(rate, payload, payload_bytes, values)
                                                                : decode<double>(rate, payload, payload_bytes, values);
                           }};

}  // namespace narrowcast::codec::rate
