#include "codec/grouped/reference.h"

#include <array>
#include <cstring>
#include <span>

#include "codec/grouped/format.h"
#include "codec/grouped/random.h"
#include "codec/grouped/small_floats.h"

namespace narrowcast::codec::grouped {
namespace {

constexpr uint32_t most_elems = block_bytes / 2;
using Values = std::array<float, most_elems>;

// --- Bytes of the payload

template <typename Number>
void put(uint8_t* bytes, uint32_t index, Number number) {
  std::memcpy(bytes + index * sizeof number, &number, sizeof number);
}
template <typename Number>
Number get_number(const uint8_t* bytes, uint32_t index) {
  Number number;
  std::memcpy(&number, bytes + index * sizeof number, sizeof number);
  return number;
}

// Codes of `bits` bits one after the other, from the lowest bit of each byte. The bytes are zero at first.
void put_bits(uint8_t* bytes, uint32_t index, uint32_t bits, uint32_t code) {
  for (uint32_t i = 0; i < bits; ++i)
    bytes[(index * bits + i) / 8] |= static_cast<uint8_t>((code >> i & 1) << (index * bits + i) % 8);
}
uint32_t get_bits(const uint8_t* bytes, uint32_t index, uint32_t bits) {
  uint32_t code = 0;
  for (uint32_t i = 0; i < bits; ++i)
    code |= static_cast<uint32_t>(bytes[(index * bits + i) / 8] >> (index * bits + i) % 8 & 1) << i;
  return code;
}

void put_code(const Coding& coding, uint32_t elems, uint8_t* payload, uint32_t index, uint32_t code) {
  if (coding.element != Element::int6) return put_bits(payload, index, bits_of(coding.element), code);
  put_bits(payload, index, 4, code & 15);
  put_bits(payload + coding.upper_plane(elems), index, 2, code >> 4 & 3);
}
uint32_t get_code(const Coding& coding, uint32_t elems, const uint8_t* payload, uint32_t index) {
  if (coding.element != Element::int6) return get_bits(payload, index, bits_of(coding.element));
  return get_bits(payload, index, 4) | get_bits(payload + coding.upper_plane(elems), index, 2) << 4;
}

// --- Rotation

// The Walsh-Hadamard transform, its own inverse.
void rotate(std::span<float> values) {
  for (size_t step = 1; step < values.size(); step *= 2)
    for (size_t i = 0; i < values.size(); ++i)
      if ((i & step) == 0) {
        const float a = values[i], b = values[i + step];
        values[i] = a + b;
        values[i + step] = a - b;
      }
  for (float& value : values) value *= rotation_factor(static_cast<uint32_t>(values.size()));
}
void rotate_unit(const Coding& coding, std::span<float> unit) {
  for (size_t first = 0; first < unit.size(); first += coding.rotate) rotate(unit.subspan(first, coding.rotate));
}

// --- Groups

struct Group {
  float largest = 0, least = INFINITY, most = -INFINITY;  // of the finite values
  bool has_nan = false, has_infinity = false, has_minus_infinity = false;

  explicit Group(std::span<const float> values) {
    for (const float value : values) {
      if (std::isnan(value)) {
        has_nan = true;
      } else if (std::isinf(value)) {
        (value > 0 ? has_infinity : has_minus_infinity) = true;
      } else {
        largest = std::max(largest, std::abs(value));
        least = std::min(least, value);
        most = std::max(most, value);
      }
    }
    if (least > most) least = most = 0;
    least += 0.0f;  // not -0
    most += 0.0f;
  }
  bool is_finite() const { return !has_nan && !has_infinity && !has_minus_infinity; }
};

float half(float value) { return std::ldexp(value, -1); }

// The bits of a bfloat16 scale: p, rounded up.
uint32_t scale_bits(float p, bool is_special, const Group& group) {
  const uint32_t bits = std::clamp((std::bit_cast<uint32_t>(p) + 0xffff) >> 16, 0x0080u, 0x7f7fu);
  if (!is_special) return bits;
  const uint32_t kind = group.is_finite()                                                   ? special_is_unused
                        : group.has_nan || (group.has_infinity && group.has_minus_infinity) ? special_is_nan
                        : group.has_infinity                                                ? special_is_infinity
                                                                                            : special_is_minus_infinity;
  return std::min((bits + 3) & ~3u, 0x7f7cu) | kind | special_scale;
}
float scale_of_bits(uint32_t bits) {
  return std::bit_cast<float>((bits & special_scale) != 0 ? (bits & 0x7ffc) << 16 : bits << 16);
}

// --- Encoding

class Encoder {
 public:
  Encoder(const BlockType& type, const BlockContext& context, const uint8_t* values, uint8_t* payload)
      : type_(type),
        context_(context),
        coding_(coding_of(type.codec)),
        elems_(type.block_elems()),
        payload_(payload),
        scales_(payload + coding_.scales(elems_)),
        second_scales_(payload + coding_.second_scales(elems_)) {
    for (uint32_t i = 0; i < elems_; ++i)
      values_[i] = value_of(
          type.dtype, type.dtype == NCAST_FLOAT32 ? get_number<uint32_t>(values, i) : get_number<uint16_t>(values, i));
  }

  size_t encode() {
    std::memset(payload_, 0, coding_.payload_bytes(elems_));
    if (coding_.scale == Scale::e4m3) {
      block_scale_ = std::max(Group({values_.data(), elems_}).largest / (448 * 6), least_block_scale);
      put(second_scales_, 0, block_scale_);
    }
    const uint32_t unit = coding_.unit();
    for (uint32_t first = 0; first < elems_; first += unit) {
      const std::span<float> values(values_.data() + first, unit);
      const Group all(values);
      const bool is_special = coding_.rotate > 1 && (!all.is_finite() || all.largest >= least_unrotated);
      if (coding_.rotate > 1 && !is_special) rotate_unit(coding_, values);
      for (uint32_t i = 0; i < unit; i += coding_.group) encode_group((first + i) / coding_.group, is_special);
    }
    return coding_.payload_bytes(elems_);
  }

 private:
  void encode_group(uint32_t number, bool is_special) {
    const Group group({values_.data() + number * coding_.group, coding_.group});
    switch (coding_.scale) {
      case Scale::bfloat16: return encode_integers(number, group, is_special || !group.is_finite());
      case Scale::bfloat16_and_zero: return encode_range(number, group);
      default: return encode_floats(number, group);
    }
  }

  void encode_integers(uint32_t number, const Group& group, bool is_special) {
    const int largest = largest_code(coding_.element);
    const uint32_t bits =
        scale_bits(group.largest * reciprocal_rounded_up(static_cast<float>(largest)), is_special, group);
    put(scales_, number, static_cast<uint16_t>(bits));
    const float inverse = 1 / scale_of_bits(bits);
    for_each_value(number, [&](uint32_t index, float value) {
      return std::isfinite(value) ? rounded(index, value, inverse, -largest, largest) : -largest - 1;
    });
  }

  void encode_range(uint32_t number, const Group& group) {
    const bool is_special = !group.is_finite();
    const int largest = largest_code(coding_.element) - (is_special ? 1 : 0);
    const float range = half(group.most) - half(group.least);
    const uint32_t bits =
        scale_bits(range * (2 * reciprocal_rounded_up(static_cast<float>(largest))), is_special, group);
    put(scales_, number, static_cast<uint16_t>(bits));
    const uint32_t zero = bits_of_value(type_.dtype, group.least);
    if (type_.dtype == NCAST_FLOAT32)
      put(second_scales_, number, zero);
    else
      put(second_scales_, number, static_cast<uint16_t>(zero));
    const float inverse = 2 * (1 / scale_of_bits(bits));
    for_each_value(number, [&](uint32_t index, float value) {
      return std::isfinite(value) ? rounded(index, half(value) - half(group.least), inverse, 0, largest) : largest + 1;
    });
  }

  void encode_floats(uint32_t number, const Group& group) {
    const SmallFloat format = small_float(coding_.element);
    float inverse = 0;
    if (coding_.scale == Scale::float32) {
      const float scale = std::max(group.largest * reciprocal_rounded_up(format.largest), least_scale);
      const bool is_infinite = coding_.element == Element::e4m3 && !group.is_finite() && !group.has_nan;
      put(scales_, number, std::bit_cast<uint32_t>(scale) | (is_infinite ? infinite_scale : 0));
      inverse = 1 / scale;
    } else if (coding_.scale == Scale::e8m0) {
      const int exponent = static_cast<int>(std::bit_cast<uint32_t>(group.largest) >> 23) - format.largest_exponent;
      const auto byte = group.is_finite() ? static_cast<uint32_t>(std::max(exponent, 0)) : e8m0_nan;
      put(scales_, number, static_cast<uint8_t>(byte));
      inverse = group.is_finite() ? std::ldexp(1.0f, 127 - static_cast<int>(byte)) : 0;
    } else {
      const SmallFloat e4m3 = small_float(Element::e4m3);
      const float relative = group.largest * (1 / 6.0f) * (1 / block_scale_);
      const uint32_t byte =
          group.is_finite() ? small_float_code(e4m3, std::min(relative, e4m3.largest), -1, 0) : e4m3_nan;
      put(scales_, number, static_cast<uint8_t>(byte));
      const float scale = small_float_value(e4m3, byte) * block_scale_;
      inverse = group.is_finite() && scale != 0 ? 1 / scale : 0;
    }
    if (coding_.scale != Scale::float32 && !group.is_finite()) return;  // all codes are 0
    const uint32_t sign = 1u << (bits_of(coding_.element) - 1), top = sign - 1;
    for_each_value(number, [&](uint32_t index, float value) {
      if (std::isnan(value)) return top;
      const uint32_t sign_of_code = std::signbit(value) ? sign : 0;
      // Infinity in e4m3 has the code of NaN, with a sign only if infinities are all that is not finite.
      if (std::isinf(value))
        return coding_.element == Element::e5m2 ? 0x7c | sign_of_code : top | (group.has_nan ? 0 : sign_of_code);
      const float magnitude = std::min(std::abs(value) * inverse, format.largest);
      return sign_of_code | small_float_code(format, magnitude, random(index), random_bits);
    });
  }

  // Stores code_of(index in the block, value) for each value of a group.
  template <typename CodeOf>
  void for_each_value(uint32_t number, CodeOf code_of) {
    for (uint32_t index = number * coding_.group; index < (number + 1) * coding_.group; ++index)
      put_code(coding_, elems_, payload_, index, static_cast<uint32_t>(code_of(index, values_[index])));
  }

  // -1: the value is rounded to nearest.
  int32_t random(uint32_t index) const {
    if (!coding_.is_stochastic) return -1;
    const uint32_t within = index % chunk_elems;
    return static_cast<int32_t>(random_number(random_words(context_, coding_.seed, index - within), within));
  }

  int rounded(uint32_t index, float value, float inverse, int least, int most) const {
    if (!coding_.is_stochastic) return static_cast<int>(std::nearbyint(double{value} * inverse));
    const float quotient = value * inverse;
    const auto units = static_cast<int>(std::nearbyint(std::ldexp(double{quotient}, random_bits)));
    return std::clamp((units + random(index)) >> random_bits, least, most);
  }

  const BlockType& type_;
  const BlockContext& context_;
  const Coding coding_;
  const uint32_t elems_;
  uint8_t* const payload_;
  uint8_t* const scales_;
  uint8_t* const second_scales_;
  float block_scale_ = 0;
  Values values_;
};

// --- Decoding

class Decoder {
 public:
  Decoder(const BlockType& type, const uint8_t* payload)
      : type_(type),
        coding_(coding_of(type.codec)),
        elems_(type.block_elems()),
        payload_(payload),
        scales_(payload + coding_.scales(elems_)),
        second_scales_(payload + coding_.second_scales(elems_)) {}

  bool decode(uint8_t* values) {
    if (coding_.scale == Scale::e4m3) {
      const auto bits = get_number<uint32_t>(second_scales_, 0);
      if (!is_normal(bits, 23) || (bits & sign_bit) != 0) return false;
      block_scale_ = std::bit_cast<float>(bits);
    }
    for (uint32_t group = 0; group < elems_ / coding_.group; ++group)
      if (!decode_group(group)) return false;
    if (coding_.rotate > 1) {
      Values rotated = plain_;
      for (uint32_t first = 0; first < elems_; first += coding_.unit())
        rotate_unit(coding_, {rotated.data() + first, coding_.unit()});
      for (uint32_t i = 0; i < elems_; ++i)
        if (!is_special(i / coding_.group)) values_[i] = limited(rotated[i]);
    }
    for (uint32_t i = 0; i < elems_; ++i) {
      const uint32_t bits = bits_of_value(type_.dtype, values_[i]);
      if (type_.dtype == NCAST_FLOAT32)
        put(values, i, bits);
      else
        put(values, i, static_cast<uint16_t>(bits));
    }
    return true;
  }

 private:
  // Whether a float with so many mantissa bits is neither 0, subnormal, infinite nor NaN.
  static bool is_normal(uint32_t bits, int mantissa_bits) {
    const uint32_t exponent = bits >> mantissa_bits & 0xff;
    return exponent != 0 && exponent != 0xff;
  }
  bool is_special(uint32_t group) const { return (get_number<uint16_t>(scales_, group) & special_scale) != 0; }

  float limited(float value) const {
    const float largest = largest_value(type_.dtype);
    return value > largest ? largest : value < -largest ? -largest : value;
  }

  bool decode_group(uint32_t number) {
    switch (coding_.scale) {
      case Scale::bfloat16:
      case Scale::bfloat16_and_zero: return decode_integers(number);
      case Scale::float32: {
        const auto bits = get_number<uint32_t>(scales_, number);
        const bool is_infinite = (bits & infinite_scale) != 0;
        if (!is_normal(bits, 23) || (is_infinite && coding_.element != Element::e4m3)) return false;
        decode_floats(number, std::bit_cast<float>(bits & ~infinite_scale), is_infinite);
        return true;
      }
      case Scale::e8m0: {
        const auto byte = get_number<uint8_t>(scales_, number);
        decode_floats(number, byte == e8m0_nan ? NAN : std::ldexp(1.0f, static_cast<int>(byte) - 127), false);
        return true;
      }
      default: {
        const auto byte = get_number<uint8_t>(scales_, number);
        if (byte > e4m3_nan) return false;
        decode_floats(
            number, byte == e4m3_nan ? NAN : small_float_value(small_float(Element::e4m3), byte) * block_scale_, false);
        return true;
      }
    }
  }

  bool decode_integers(uint32_t number) {
    const auto bits = get_number<uint16_t>(scales_, number);
    if (!is_normal(bits, 7)) return false;
    const bool has_zero = coding_.scale == Scale::bfloat16_and_zero, special = (bits & special_scale) != 0;
    const float scale = scale_of_bits(bits);
    float zero = 0;
    if (has_zero) {
      zero = value_of(type_.dtype, type_.dtype == NCAST_FLOAT32 ? get_number<uint32_t>(second_scales_, number)
                                                                : get_number<uint16_t>(second_scales_, number));
      if (!std::isfinite(zero)) return false;
    }
    const float what = std::array{NAN, INFINITY, -INFINITY, 0.0f}[bits & 3];
    const int largest = largest_code(coding_.element), special_code = has_zero ? largest : -largest - 1;
    for_each_value(number, [&](uint32_t index, uint32_t code) {
      const int step = has_zero
                           ? static_cast<int>(code)
                           : static_cast<int>(code) - (code > static_cast<uint32_t>(largest) ? 2 * largest + 2 : 0);
      const float value = std::fma(static_cast<float>(step), scale, zero);
      plain_[index] = value;
      return special && step == special_code && (bits & 3) != special_is_unused ? what : limited(value);
    });
    return true;
  }

  void decode_floats(uint32_t number, float scale, bool is_infinite) {
    const SmallFloat format = small_float(coding_.element);
    const uint32_t sign = 1u << (bits_of(coding_.element) - 1);
    for_each_value(number, [&](uint32_t, uint32_t code) {
      const uint32_t magnitude = code & (sign - 1);
      float value = limited(small_float_value(format, magnitude) * scale);
      if (magnitude > format.largest_code)
        value = is_infinite || (coding_.element == Element::e5m2 && magnitude == 0x7c) ? INFINITY : NAN;
      return (code & sign) != 0 ? -value : value;
    });
  }

  template <typename ValueOf>
  void for_each_value(uint32_t number, ValueOf value_of_code) {
    for (uint32_t index = number * coding_.group; index < (number + 1) * coding_.group; ++index)
      values_[index] = value_of_code(index, get_code(coding_, elems_, payload_, index));
  }

  const BlockType& type_;
  const Coding coding_;
  const uint32_t elems_;
  const uint8_t* const payload_;
  const uint8_t* const scales_;
  const uint8_t* const second_scales_;
  float block_scale_ = 0;
  Values values_;
  Values plain_;  // what the integers are if no code is special and no value limited
};

}  // namespace

const BlockCoder reference{[](const BlockType& type, const BlockContext& context, const uint8_t* values,
                              uint8_t* payload) { return Encoder(type, context, values, payload).encode(); },
                           [](const BlockType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
                             return payload_bytes == coding_of(type.codec).payload_bytes(type.block_elems()) &&
                                    Decoder(type, payload).decode(values);
                           }};

}  // namespace narrowcast::codec::grouped
