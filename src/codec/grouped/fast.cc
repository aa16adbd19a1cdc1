// Loops over whole groups that compilers vectorise. Blocks with special groups, and those whose values have to be
// limited, are left to the reference.
#include "codec/grouped/fast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/grouped/format.h"
#include "codec/grouped/random.h"
#include "codec/grouped/reference.h"
#include "codec/grouped/small_floats.h"

namespace narrowcast::codec::grouped {
namespace {

constexpr uint32_t most_in_block = block_bytes / 2, infinite = 0x7f800000;
using Floats = std::array<float, most_in_block>;
using Codes = std::array<uint8_t, most_in_block>;

uint32_t bits_of_float(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t magnitude(float value) { return bits_of_float(value) & 0x7fffffff; }
bool is_normal_float(uint32_t bits) { return (bits & infinite) != 0 && (bits & infinite) != infinite; }

// --- Values

// Infinities and NaN become large numbers, which are left to the reference.
float float_of_half(uint32_t bits) {
  const float value = float_of((bits & 0x7fff) << 13) * 0x1p112f;
  return float_of(((bits & 0x7c00) == 0x7c00 ? infinite : bits_of_float(value)) | (bits & 0x8000) << 16);
}
// Of a magnitude that is not beyond the largest.
uint32_t half_of_float(float value) {
  const uint32_t bits = bits_of_float(value), size = bits & 0x7fffffff;
  const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  // Adding 0.5 rounds to a multiple of 2^-24, of which subnormal halves are.
  const uint32_t subnormal = bits_of_float(float_of(size) + 0.5f) - 0x3f000000;
  return (bits >> 16 & 0x8000) | (size < 0x38800000 ? subnormal : normal);
}
uint32_t bfloat16_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

template <typename Bits, typename Float>
void load(const uint8_t* values, uint32_t elems, float* to, Float float_of_bits) {
  for (uint32_t i = 0; i < elems; ++i) {
    Bits bits;
    std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
    to[i] = float_of_bits(bits);
  }
}
template <typename Convert>
void store(const float* from, uint32_t elems, uint8_t* values, Convert bits_of_value) {
  for (uint32_t i = 0; i < elems; ++i) {
    const auto bits = static_cast<uint16_t>(bits_of_value(from[i]));
    std::memcpy(values + i * sizeof bits, &bits, sizeof bits);
  }
}

// --- Codes, a byte each and packed

template <uint32_t width>
void pack(const uint8_t* codes, uint32_t elems, uint32_t shift, uint8_t* to) {
  for (uint32_t first = 0; first < elems; first += chunk_elems, to += width) {
    uint64_t word = 0;
    for (uint32_t i = 0; i < chunk_elems; ++i)
      word |= uint64_t{codes[first + i] >> shift & ((1u << width) - 1)} << i * width;
    std::memcpy(to, &word, width);
  }
}
template <uint32_t width>
void unpack(const uint8_t* from, uint32_t elems, uint32_t shift, uint8_t* codes) {
  for (uint32_t first = 0; first < elems; first += chunk_elems, from += width) {
    uint64_t word = 0;
    std::memcpy(&word, from, width);
    for (uint32_t i = 0; i < chunk_elems; ++i)
      codes[first + i] |= static_cast<uint8_t>((word >> i * width & ((1u << width) - 1)) << shift);
  }
}

void pack_codes(const Coding& coding, const uint8_t* codes, uint32_t elems, uint8_t* payload) {
  switch (bits_of(coding.element)) {
    case 8: std::memcpy(payload, codes, elems); return;
    case 4: return pack<4>(codes, elems, 0, payload);
    case 2: return pack<2>(codes, elems, 0, payload);
    default:
      if (coding.element != Element::int6) return pack<6>(codes, elems, 0, payload);
      pack<4>(codes, elems, 0, payload);
      pack<2>(codes, elems, 4, payload + coding.upper_plane(elems));
  }
}
void unpack_codes(const Coding& coding, const uint8_t* payload, uint32_t elems, uint8_t* codes) {
  std::memset(codes, 0, elems);
  switch (bits_of(coding.element)) {
    case 8: std::memcpy(codes, payload, elems); return;
    case 4: return unpack<4>(payload, elems, 0, codes);
    case 2: return unpack<2>(payload, elems, 0, codes);
    default:
      if (coding.element != Element::int6) return unpack<6>(payload, elems, 0, codes);
      unpack<4>(payload, elems, 0, codes);
      unpack<2>(payload + coding.upper_plane(elems), elems, 4, codes);
  }
}

// --- Rotation

void rotate(const Coding& coding, float* values, uint32_t elems) {
  const float factor = rotation_factor(coding.rotate);
  for (uint32_t step = 1; step < coding.rotate; step *= 2)
    for (uint32_t first = 0; first < elems; first += 2 * step)
      for (uint32_t i = first; i < first + step; ++i) {
        const float a = values[i], b = values[i + step];
        values[i] = a + b;
        values[i + step] = a - b;
      }
  for (uint32_t i = 0; i < elems; ++i) values[i] *= factor;
}

// --- Encoding

struct Encoding {
  const Coding coding;
  const BlockContext& context;
  const uint32_t elems;
  Floats x;
  Codes codes;

  // The random number of value i of a chunk.
  template <typename CodeOf>
  void round_at_random(uint32_t first, CodeOf code_of) {
    for (uint32_t chunk = first; chunk < first + coding.group; chunk += chunk_elems) {
      const RandomWords words = random_words(context, coding.seed, chunk);
      for (uint32_t i = 0; i < chunk_elems; ++i)
        codes[chunk + i] = static_cast<uint8_t>(code_of(x[chunk + i], random_number(words, i)));
    }
  }

  void round_integers(uint32_t first, float inverse, int least, int most) {
    // Adding it to a double below 2^51 rounds to an integer, the low bits of the sum.
    constexpr double to_integer = 0x1.8p52;
    if (coding.is_stochastic)
      return round_at_random(first, [&](float value, uint32_t random) {
        const float quotient = value * inverse;
        const double parts = double{quotient} * (1 << random_bits) + to_integer;
        const auto sum = static_cast<int32_t>(std::bit_cast<uint64_t>(parts)) + static_cast<int32_t>(random);
        return std::clamp(sum >> random_bits, least, most);
      });
    for (uint32_t i = first; i < first + coding.group; ++i)
      codes[i] = static_cast<uint8_t>(std::bit_cast<uint64_t>(double{x[i]} * inverse + to_integer));
  }

  void round_floats(uint32_t first, float inverse) {
    const SmallFloat format = small_float(coding.element);
    const auto least = static_cast<uint32_t>(127 + format.least_exponent) << 23;
    const auto shift = static_cast<uint32_t>(23 - format.mantissa_bits);
    const uint32_t sign_shift = 32 - bits_of(coding.element);
    const float largest = format.largest;
    const auto code_of = [&](float value, uint32_t fraction_bits, uint32_t random) {
      const float size = std::min(std::abs(value) * inverse, largest);
      const uint32_t exponent = std::max(bits_of_float(size) & infinite, least);
      const uint32_t added = exponent + ((shift - fraction_bits) << 23);
      const uint32_t parts = bits_of_float(size + float_of(added)) - added + random;
      return ((parts >> fraction_bits) + ((exponent - least) >> shift)) |
             (bits_of_float(value) & 0x80000000) >> sign_shift;
    };
    if (coding.is_stochastic)
      return round_at_random(first, [&](float value, uint32_t random) { return code_of(value, random_bits, random); });
    for (uint32_t i = first; i < first + coding.group; ++i) codes[i] = static_cast<uint8_t>(code_of(x[i], 0, 0));
  }

  uint32_t largest(uint32_t first, uint32_t count) const {
    uint32_t most = 0;
    for (uint32_t i = first; i < first + count; ++i) most = std::max(most, magnitude(x[i]));
    return most;
  }
};

uint32_t scale_bits_above(float p) { return std::clamp((bits_of_float(p) + 0xffff) >> 16, 0x0080u, 0x7f7fu); }

template <typename Number>
void put_number(uint8_t* to, uint32_t index, Number number) {
  std::memcpy(to + index * sizeof number, &number, sizeof number);
}

// Returns false if the reference has to encode the block.
bool encode_finite(const BlockType& type, Encoding& block, uint8_t* payload) {
  const Coding& coding = block.coding;
  const uint32_t elems = block.elems, group = coding.group;
  const uint32_t most_in_whole_block = block.largest(0, elems);
  if (most_in_whole_block >= (coding.rotate > 1 ? bits_of_float(least_unrotated) : infinite)) return false;
  uint8_t* const scales = payload + coding.scales(elems);
  uint8_t* const second_scales = payload + coding.second_scales(elems);
  if (coding.rotate > 1) rotate(coding, block.x.data(), elems);
  const float block_scale = std::max(float_of(most_in_whole_block) / (448 * 6), least_block_scale);
  const SmallFloat format = small_float(coding.element), e4m3 = small_float(Element::e4m3);
  for (uint32_t first = 0, number = 0; first < elems; first += group, ++number) {
    switch (coding.scale) {
      case Scale::bfloat16: {
        const int most = largest_code(coding.element);
        const uint32_t bits =
            scale_bits_above(float_of(block.largest(first, group)) * reciprocal_rounded_up(static_cast<float>(most)));
        put_number(scales, number, static_cast<uint16_t>(bits));
        block.round_integers(first, 1 / float_of(bits << 16), -most, most);
        break;
      }
      case Scale::bfloat16_and_zero: {
        float least = block.x[first], most = least;
        for (uint32_t i = first; i < first + group; ++i) {
          least = std::min(least, block.x[i]);
          most = std::max(most, block.x[i]);
        }
        least += 0.0f;  // not -0
        most += 0.0f;
        const float range = most - least;
        if (!(range < 0x1p127f) || (range < 0x1p-100f && range != 0)) return false;
        for (uint32_t i = first; i < first + group; ++i) block.x[i] = (block.x[i] - least) * 0.5f;
        const uint32_t bits = scale_bits_above(range * 0.5f * (2 * reciprocal_rounded_up(255)));
        put_number(scales, number, static_cast<uint16_t>(bits));
        const uint32_t zero = bits_of_value(type.dtype, least);
        if (type.dtype == NCAST_FLOAT32)
          put_number(second_scales, number, zero);
        else
          put_number(second_scales, number, static_cast<uint16_t>(zero));
        block.round_integers(first, 2 * (1 / float_of(bits << 16)), 0, 255);
        break;
      }
      case Scale::float32: {
        const float most = float_of(block.largest(first, group));
        const float scale = std::max(most * reciprocal_rounded_up(format.largest), least_scale);
        put_number(scales, number, scale);
        block.round_floats(first, 1 / scale);
        break;
      }
      case Scale::e8m0: {
        const int exponent = static_cast<int>(block.largest(first, group) >> 23) - format.largest_exponent;
        const auto byte = static_cast<uint32_t>(std::max(exponent, 0));
        put_number(scales, number, static_cast<uint8_t>(byte));
        block.round_floats(first, float_of((254 - byte) << 23));
        break;
      }
      case Scale::e4m3: {
        const float relative = float_of(block.largest(first, group)) * (1 / 6.0f) * (1 / block_scale);
        const uint32_t byte = small_float_code(e4m3, std::min(relative, e4m3.largest), -1, 0);
        put_number(scales, number, static_cast<uint8_t>(byte));
        const float scale = small_float_value(e4m3, byte) * block_scale;
        block.round_floats(first, scale != 0 ? 1 / scale : 0);
        break;
      }
    }
  }
  pack_codes(coding, block.codes.data(), elems, payload);
  if (coding.scale == Scale::e4m3) {
    std::memset(second_scales, 0, 16);
    put_number(second_scales, 0, block_scale);
  }
  return true;
}

size_t encode(const BlockType& type, const BlockContext& context, const uint8_t* values, uint8_t* payload) {
  Encoding block{coding_of(type.codec), context, type.block_elems(), {}, {}};
  if (type.dtype == NCAST_FLOAT32)
    std::memcpy(block.x.data(), values, block_bytes);
  else if (type.dtype == NCAST_BFLOAT16)
    load<uint16_t>(values, block.elems, block.x.data(), [](uint16_t bits) { return float_of(uint32_t{bits} << 16); });
  else
    load<uint16_t>(values, block.elems, block.x.data(), float_of_half);
  if (!encode_finite(type, block, payload)) return reference.encode(type, context, values, payload);
  return block.coding.payload_bytes(block.elems);
}

// --- Decoding

template <typename Number>
Number number_at(const uint8_t* from, uint32_t index) {
  Number number;
  std::memcpy(&number, from + index * sizeof number, sizeof number);
  return number;
}

// The float of each code of an element.
std::array<float, 256> make_table(Element element) {
  std::array<float, 256> table = {};
  const uint32_t count = 1u << bits_of(element), sign = count / 2;
  for (uint32_t code = 0; code < count; ++code) {
    if (element == Element::uint8)
      table[code] = static_cast<float>(code);
    else if (is_integer(element))
      table[code] = static_cast<float>(code) - (code < sign ? 0 : static_cast<float>(count));
    else
      table[code] = std::copysign(small_float_value(small_float(element), code % sign), code < sign ? 1.0f : -1.0f);
  }
  return table;
}
const std::array<float, 256>& table_of(Element element) {
  static const auto tables = [] {
    std::array<std::array<float, 256>, 10> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = make_table(static_cast<Element>(i));
    return all;
  }();
  return tables[static_cast<size_t>(element)];
}

// The scale of a group; negative if the reference has to decode the block.
float scale_of_group(const Coding& coding, const uint8_t* scales, uint32_t number, float block_scale) {
  switch (coding.scale) {
    case Scale::bfloat16:
    case Scale::bfloat16_and_zero: {
      const uint32_t bits = uint32_t{number_at<uint16_t>(scales, number)} << 16;
      return is_normal_float(bits) && bits < infinite ? float_of(bits) : -1;
    }
    case Scale::float32: {
      const auto bits = number_at<uint32_t>(scales, number);
      return is_normal_float(bits) && bits < infinite ? float_of(bits) : -1;
    }
    case Scale::e8m0: {
      const uint32_t byte = scales[number];
      return byte == e8m0_nan ? -1 : float_of(byte == 0 ? 0x00400000 : byte << 23);
    }
    default:
      return scales[number] >= e4m3_nan ? -1
                                        : small_float_value(small_float(Element::e4m3), scales[number]) * block_scale;
  }
}

// Returns false if the reference has to decode the block.
bool decode_finite(const BlockType& type, const uint8_t* payload, uint8_t* values) {
  const Coding coding = coding_of(type.codec);
  const uint32_t elems = type.block_elems(), group = coding.group;
  const uint8_t* const scales = payload + coding.scales(elems);
  const uint8_t* const second_scales = payload + coding.second_scales(elems);
  float block_scale = 0;
  if (coding.scale == Scale::e4m3) {
    block_scale = number_at<float>(second_scales, 0);
    if (!is_normal_float(bits_of_float(block_scale)) || block_scale < 0) return false;
  }
  Codes codes;
  Floats x;
  unpack_codes(coding, payload, elems, codes.data());
  if (coding.scale != Scale::e4m3 && coding.element >= Element::e4m3 && coding.element <= Element::e5m2) {
    const uint32_t largest = small_float(coding.element).largest_code;
    bool is_special = false;
    for (uint32_t i = 0; i < elems; ++i) is_special |= (codes[i] & 0x7fu) > largest;
    if (is_special) return false;
  }
  const auto& table = table_of(coding.element);
  const float most = is_integer(coding.element) ? static_cast<float>(largest_code(coding.element) + 1)
                                                : small_float(coding.element).largest;
  const float limit = largest_value(type.dtype) / static_cast<float>(coding.rotate);
  for (uint32_t first = 0, number = 0; first < elems; first += group, ++number) {
    const float scale = scale_of_group(coding, scales, number, block_scale);
    if (scale < 0) return false;
    float least = 0;
    if (coding.scale == Scale::bfloat16_and_zero)
      least = value_of(type.dtype, type.dtype == NCAST_FLOAT32 ? number_at<uint32_t>(second_scales, number)
                                                               : number_at<uint16_t>(second_scales, number));
    if (!(most * scale + std::abs(least) <= limit)) return false;
    if (coding.scale == Scale::bfloat16_and_zero)
      for (uint32_t i = first; i < first + group; ++i) x[i] = table[codes[i]] * scale + least;
    else
      for (uint32_t i = first; i < first + group; ++i) x[i] = table[codes[i]] * scale;
  }
  if (coding.rotate > 1) rotate(coding, x.data(), elems);
  if (type.dtype == NCAST_FLOAT32)
    std::memcpy(values, x.data(), block_bytes);
  else if (type.dtype == NCAST_BFLOAT16)
    store(x.data(), elems, values, bfloat16_of_float);
  else
    store(x.data(), elems, values, half_of_float);
  return true;
}

bool decode(const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes != coding_of(type.codec).payload_bytes(type.block_elems())) return false;
  return decode_finite(type, payload, values) || reference.decode(type, payload, payload_bytes, values);
}

}  // namespace

const BlockCoder fast{encode, decode};

}  // namespace narrowcast::codec::grouped
