// Planes of four bits are coded by tables, and the bits of a quad are in two words.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "codec/rate/block.h"
#include "codec/rate/format.h"

namespace narrowcast::codec::rate {
namespace {

// How a plane of four bits is coded, or the plane that coded bits stand for: these bits or that plane, the number of
// coded bits, and how many numbers have had a one after the plane. The tables are by the number before it.
struct PlaneCode {
  uint8_t bits, length, active;
};
constexpr uint32_t most_plane_bits = 7;
using PlaneCodes = std::array<std::array<PlaneCode, 16>, quad_elems + 1>;
constexpr PlaneCodes plane_codes = [] {
  PlaneCodes codes{};
  for (uint32_t before = 0; before <= quad_elems; ++before)
    for (uint32_t plane = 0; plane < 16; ++plane) {
      uint32_t active = before, length = before, bits = plane & ((1u << before) - 1);
      while (active < quad_elems) {
        const bool more = plane >> active != 0;
        bits |= uint32_t{more} << length++;
        if (!more) break;
        for (; (plane >> active & 1) == 0; ++active) ++length;
        if (active < quad_elems - 1) bits |= 1u << length++;
        ++active;
      }
      codes[before][plane] = {static_cast<uint8_t>(bits), static_cast<uint8_t>(length), static_cast<uint8_t>(active)};
    }
  return codes;
}();

using Planes = std::array<std::array<PlaneCode, 1 << most_plane_bits>, quad_elems + 1>;
constexpr Planes planes_of_bits = [] {
  Planes planes{};
  for (uint32_t before = 0; before <= quad_elems; ++before)
    for (uint32_t plane = 0; plane < 16; ++plane) {
      const PlaneCode code = plane_codes[before][plane];
      for (uint32_t rest = 0; rest < 1u << (most_plane_bits - code.length); ++rest)
        planes[before][code.bits | rest << code.length] = {static_cast<uint8_t>(plane), code.length, code.active};
    }
  return planes;
}();

// The bits of a quad: at most 124, and some that are cut off.
struct QuadBits {
  uint64_t low = 0, high = 0;

  void put(uint64_t bits, uint32_t length, uint32_t at) {
    if (at < 64) {
      low |= bits << at;
      if (at + length > 64) high |= bits >> (64 - at);
    } else if (at < 128) {
      high |= bits << (at - 64);
    }
  }
  // At least 57 bits.
  uint64_t from(uint32_t at) const {
    if (at >= 64) return at < 128 ? high >> (at - 64) : 0;
    return at == 0 ? low : low >> at | high << (64 - at);
  }
};

template <typename Unit>
void store_unit(uint8_t* section, uint32_t quad, uint64_t bits) {
  const auto unit = static_cast<Unit>(bits);
  std::memcpy(section + quad * sizeof unit, &unit, sizeof unit);
}
template <typename Unit>
uint64_t load_unit(const uint8_t* section, uint32_t quad) {
  Unit unit;
  std::memcpy(&unit, section + quad * sizeof unit, sizeof unit);
  return unit;
}

// Nibbles of odd quads go to bytes whose lower half is there.
void store(const QuadBits& string, Rate rate, uint32_t quads, uint32_t quad, uint8_t* payload) {
  uint32_t at = 0;
  for (uint32_t word = 0; word < rate.words(); ++word, at += 32)
    store_unit<uint32_t>(payload + word * 4 * quads, quad, string.from(at));
  if (rate.has_half()) store_unit<uint16_t>(payload + rate.halves(quads), quad, string.from(at)), at += 16;
  if (rate.has_byte()) store_unit<uint8_t>(payload + rate.bytes(quads), quad, string.from(at)), at += 8;
  if (rate.has_nibble()) {
    uint8_t& byte = payload[rate.nibbles(quads) + quad / 2];
    const auto nibble = static_cast<uint8_t>(string.from(at) & 15);
    byte = static_cast<uint8_t>(quad % 2 == 0 ? nibble : byte | nibble << 4);
  }
}
QuadBits load(Rate rate, uint32_t quads, uint32_t quad, const uint8_t* payload) {
  QuadBits string;
  uint32_t at = 0;
  for (uint32_t word = 0; word < rate.words(); ++word, at += 32)
    string.put(load_unit<uint32_t>(payload + word * 4 * quads, quad), 32, at);
  if (rate.has_half()) string.put(load_unit<uint16_t>(payload + rate.halves(quads), quad), 16, at), at += 16;
  if (rate.has_byte()) string.put(load_unit<uint8_t>(payload + rate.bytes(quads), quad), 8, at), at += 8;
  if (rate.has_nibble()) string.put(payload[rate.nibbles(quads) + quad / 2] >> quad % 2 * 4 & 15, 4, at);
  return string;
}

template <typename Float>
struct QuadCoder {
  using Unsigned = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
  using Signed = std::make_signed_t<Unsigned>;
  using Numbers = std::array<Unsigned, quad_elems>;
  static constexpr ValueType type = sizeof(Float) == 4 ? float32 : float64;
  static constexpr uint32_t mantissa_bits = type.mantissa_bits();
  static constexpr Unsigned mantissa_mask = (Unsigned{1} << mantissa_bits) - 1;
  static constexpr Unsigned magnitude_mask = ~Unsigned{0} >> 1;
  static constexpr Unsigned odd_digits = static_cast<Unsigned>(0xaaaaaaaaaaaaaaaa);

  static Unsigned half(Unsigned number) { return static_cast<Unsigned>(static_cast<Signed>(number) >> 1); }

  static QuadBits encoded(const Numbers& values, Rate rate) {
    constexpr Unsigned infinity = Unsigned{type.special_exponent()} << mantissa_bits;
    QuadBits string;
    Unsigned most = 0, most_finite = 0;
    for (const Unsigned bits : values) {
      const Unsigned magnitude = bits & magnitude_mask;
      most = std::max(most, magnitude);
      most_finite = std::max(most_finite, magnitude < infinity ? magnitude : 0);
    }
    if (most == 0) return string;
    const auto exponent = std::max(static_cast<uint32_t>(most_finite >> mantissa_bits), 1u);
    Numbers numbers;
    for (uint32_t i = 0; i < quad_elems; ++i) {
      const auto own = static_cast<uint32_t>((values[i] & magnitude_mask) >> mantissa_bits);
      const Unsigned mantissa = (values[i] & mantissa_mask) | Unsigned{own != 0} << mantissa_bits;
      const uint32_t shift = std::min(exponent - std::max(own, 1u), type.bits - 1);
      const Unsigned sign = 0 - (values[i] >> (type.bits - 1));
      numbers[i] = ((mantissa << type.mantissa_shift() >> shift) ^ sign) - sign;
    }
    if (most >= infinity) {
      put_special(values, numbers, exponent, rate.special_bits(type), string);
      return string;
    }
    string.put(exponent, type.exponent_bits, 0);
    auto& [x, y, z, w] = numbers;
    x = half(x + w), w -= x;
    z = half(z + y), y -= z;
    x = half(x + z), z -= x;
    w = half(w + y), y -= w;
    w += half(y), y -= half(w);
    for (Unsigned& number : numbers) number = (number + odd_digits) ^ odd_digits;
    uint32_t active = 0, at = type.exponent_bits;
    for (uint32_t plane = type.bits; plane-- > 0 && at < rate.quad_bits();) {
      const auto bit = [&](uint32_t i) { return static_cast<uint32_t>(numbers[i] >> plane & 1) << i; };
      const PlaneCode code = plane_codes[active][bit(0) | bit(1) | bit(2) | bit(3)];
      string.put(code.bits, code.length, at);
      at += code.length;
      active = code.active;
    }
    return string;
  }
  static void put_special(const Numbers& values, const Numbers& numbers, uint32_t exponent, uint32_t each,
                          QuadBits& to) {
    constexpr Unsigned infinity = Unsigned{type.special_exponent()} << mantissa_bits;
    to.put(type.special_exponent(), type.exponent_bits, 0);
    if (each == 0) return;
    to.put(exponent, type.exponent_bits, type.exponent_bits);
    const Unsigned top = Unsigned{1} << (each - 1), mask = 2 * top - 1;
    for (uint32_t i = 0; i < quad_elems; ++i) {
      const uint32_t shift = type.bits - each;
      Unsigned code = static_cast<Unsigned>(static_cast<Signed>(numbers[i] + (Unsigned{1} << (shift - 1))) >> shift);
      if ((values[i] & magnitude_mask) > infinity)
        code = top;
      else if ((values[i] & magnitude_mask) == infinity)
        code = values[i] == infinity ? top - 1 : top + 1;
      to.put(code & mask, each, 2 * type.exponent_bits + i * each);
    }
  }
  static void get_special(const QuadBits& from, uint32_t each, Numbers& values) {
    constexpr Unsigned infinity = Unsigned{type.special_exponent()} << mantissa_bits;
    values.fill(magnitude_mask);
    if (each == 0) return;
    const auto stored = static_cast<uint32_t>(from.from(type.exponent_bits) & type.special_exponent());
    const uint32_t exponent = std::clamp(stored, 1u, type.special_exponent() - 1);
    const Unsigned top = Unsigned{1} << (each - 1), mask = 2 * top - 1;
    for (uint32_t i = 0; i < quad_elems; ++i) {
      const Unsigned code = static_cast<Unsigned>(from.from(2 * type.exponent_bits + i * each)) & mask;
      if (code == top) continue;
      if (code == top - 1)
        values[i] = infinity;
      else if (code == top + 1)
        values[i] = infinity | ~magnitude_mask;
      else
        values[i] = std::bit_cast<Unsigned>(value_of(static_cast<Signed>(code << (type.bits - each)), exponent));
    }
  }

  static Numbers decoded(const QuadBits& string, Rate rate) {
    Numbers values = {};
    const auto exponent = static_cast<uint32_t>(string.low & type.special_exponent());
    if (exponent == 0) return values;
    if (exponent == type.special_exponent()) {
      get_special(string, rate.special_bits(type), values);
      return values;
    }
    uint32_t active = 0, at = type.exponent_bits, plane = type.bits;
    while (plane > 0) {
      PlaneCode next = planes_of_bits[active][string.from(at) & ((1u << most_plane_bits) - 1)];
      at += next.length;
      if (at > rate.quad_bits()) {
        // The string ends within the plane: a run without its end says nothing.
        next.bits = known_bits(active, string.from(at - next.length), rate.quad_bits() - (at - next.length));
        at = rate.quad_bits();
      }
      --plane;
      for (uint32_t i = 0; i < quad_elems; ++i) values[i] = values[i] << 1 | (next.bits >> i & 1);
      active = next.active;
      if (at == rate.quad_bits()) break;
    }
    for (Unsigned& value : values) {
      value = plane < type.bits ? value << plane : 0;
      value = (value ^ odd_digits) - odd_digits;
    }
    auto& [x, y, z, w] = values;
    y += half(w), w -= half(y);
    y += w, w = 2 * w - y;
    z += x, x = 2 * x - z;
    y += z, z = 2 * z - y;
    w += x, x = 2 * x - w;
    for (Unsigned& value : values) value = std::bit_cast<Unsigned>(value_of(static_cast<Signed>(value), exponent));
    return values;
  }
  // The plane in the last `count` bits, fewer than it has.
  static uint8_t known_bits(uint32_t active, uint64_t bits, uint32_t count) {
    uint32_t plane = 0, used = 0;
    const auto next = [&] { return (bits >> used++ & 1) != 0; };
    for (uint32_t i = 0; i < active && used < count; ++i) plane |= uint32_t{next()} << i;
    while (active < quad_elems && used < count && next()) {
      for (; active < quad_elems - 1; ++active) {
        if (used == count) return static_cast<uint8_t>(plane);
        if (next()) break;
      }
      plane |= 1u << active++;
    }
    return static_cast<uint8_t>(plane);
  }
  static Float value_of(Signed number, uint32_t exponent) {
    constexpr Float unit = sizeof(Float) == 4 ? Float(0x1p-29) : Float(0x1p-61);  // of exponent 0
    constexpr Float largest = std::numeric_limits<Float>::max();
    const Float power = std::bit_cast<Float>(Unsigned{exponent} << mantissa_bits);
    return std::clamp(static_cast<Float>(number) * unit * power, -largest, largest);
  }
};

template <typename Float>
size_t encode_block(Rate rate, const uint8_t* values, uint8_t* payload) {
  constexpr uint32_t quads = QuadCoder<Float>::type.quads();
  for (uint32_t quad = 0; quad < quads; ++quad) {
    typename QuadCoder<Float>::Numbers bits;
    std::memcpy(bits.data(), values + quad * sizeof bits, sizeof bits);
    store(QuadCoder<Float>::encoded(bits, rate), rate, quads, quad, payload);
  }
  return rate.payload_bytes(quads);
}

template <typename Float>
bool decode_block(Rate rate, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  constexpr uint32_t quads = QuadCoder<Float>::type.quads();
  if (payload_bytes != rate.payload_bytes(quads)) return false;
  for (uint32_t quad = 0; quad < quads; ++quad) {
    const auto bits = QuadCoder<Float>::decoded(load(rate, quads, quad, payload), rate);
    std::memcpy(values + quad * sizeof bits, bits.data(), sizeof bits);
  }
  return true;
}

}  // namespace

const BlockCoder fast{[](const BlockType& type, const BlockContext&, const uint8_t* values, uint8_t* payload) {
                        const Rate rate(type.codec);
                        return type.dtype == NCAST_FLOAT32 ? encode_block<float>(rate, values, payload)
                                                           : encode_block<double>(rate, values, payload);
                      },
                      [](const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
                        const Rate rate(type.codec);
                        return type.dtype == NCAST_FLOAT32 ? decode_block<float>(rate, payload, payload_bytes, values)
                                                           : decode_block<double>(rate, payload, payload_bytes, values);
                      }};

}  // namespace narrowcast::codec::rate
