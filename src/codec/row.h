// A row of codecs.def, and access to the fields of an ncast_codec. Does not depend on the code of any codec.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/parameter.h"
#include "narrowcast/user_codec.h"

namespace narrowcast::codec {

inline constexpr int max_parameters = 4;
inline constexpr unsigned first_parameter_bit = 16, end_of_parameters = 64;  // of an ncast_codec
inline constexpr int dtype_count = NCAST_FLOAT8_E5M2 + 1;

enum class Exactness : uint8_t { exact, bounded };
enum class Payload : uint8_t { fixed, variable };

struct Row {
  uint8_t id;
  const char* name;
  const char* code;  // the folder and namespace of its code
  Exactness exactness;
  Payload payload;
  ncast_codec_parameter parameter_slots[max_parameters];  // an entry without a name ends the list
  ncast_codec_type type_slots[dtype_count];               // an entry without block_bytes ends the list

  constexpr bool is_exact() const { return exactness == Exactness::exact; }
  constexpr bool has_fixed_payload() const { return payload == Payload::fixed; }

  constexpr std::span<const ncast_codec_parameter> parameters() const {
    size_t count = 0;
    while (count < max_parameters && parameter_slots[count].name != nullptr) ++count;
    return {parameter_slots, count};
  }
  constexpr ParameterField field(size_t parameter) const {
    unsigned shift = first_parameter_bit;
    for (size_t i = 0; i < parameter; ++i) shift += bits_of(parameter_slots[i].kind);
    return {shift, bits_of(parameter_slots[parameter].kind)};
  }
  // The bits that contain no parameter.
  constexpr ncast_codec unused_bits() const {
    const auto last = parameters().size();
    const unsigned end = last == 0 ? first_parameter_bit : field(last - 1).shift + field(last - 1).bits;
    return end == end_of_parameters ? 0 : ~ncast_codec{0} << end;
  }
  constexpr std::span<const ncast_codec_type> types() const {
    size_t count = 0;
    while (count < dtype_count && type_slots[count].block_bytes != 0) ++count;
    return {type_slots, count};
  }
  // NULL if the codec does not support this type.
  constexpr const ncast_codec_type* type(ncast_dtype dtype) const {
    for (const ncast_codec_type& type : types())
      if (type.dtype == dtype) return &type;
    return nullptr;
  }
};

// Calls may force a codec; frames and plans contain codecs without the flag.
constexpr bool is_forced(ncast_codec codec) { return (codec & NCAST_CODEC_FORCED) != 0; }
constexpr ncast_codec without_flag(ncast_codec codec) { return codec & ~ncast_codec{NCAST_CODEC_FORCED}; }

constexpr uint8_t id_of(ncast_codec codec) { return static_cast<uint8_t>(codec); }

// The codecs of users, which are not part of the library.
constexpr bool is_of_user(ncast_codec codec) {
  return id_of(codec) >= NCAST_FIRST_USER_CODEC && id_of(codec) <= NCAST_LAST_USER_CODEC;
}

// An error budget: what a call allows, and not a codec of the table.
inline constexpr ParameterField relative_field = {first_parameter_bit, 32};
constexpr bool is_within(ncast_codec codec) { return id_of(codec) == NCAST_CODEC_WITHIN; }
// The share of the largest result by which results may differ.
constexpr float relative_of(ncast_codec within) { return std::bit_cast<float>(get(within, relative_field)); }
constexpr bool is_valid_relative(float relative) { return relative > 0 && relative < 1; }

// Choices are separated by '|'; the value of the first is 1.
constexpr double count_of_choices(std::string_view choices) {
  double count = 1;
  for (const char c : choices) count += c == '|' ? 1 : 0;
  return count;
}

// The content of a parameter's field for a value, and the value of a field that is not 0.
constexpr uint32_t stored(ncast_parameter_kind kind, double value) {
  if (kind == NCAST_PARAMETER_REAL) return std::bit_cast<uint32_t>(static_cast<float>(value));
  const auto number = static_cast<uint32_t>(value);
  return kind == NCAST_PARAMETER_POWER_OF_TWO ? static_cast<uint32_t>(std::bit_width(number)) : number;
}
constexpr double value_of(ncast_parameter_kind kind, uint32_t stored) {
  if (kind == NCAST_PARAMETER_REAL) return std::bit_cast<float>(stored);
  return kind == NCAST_PARAMETER_POWER_OF_TWO ? static_cast<double>(uint64_t{1} << (stored - 1) % 64) : stored;
}
// Whether the field of a parameter contains a value in its range.
constexpr bool is_valid(const ncast_codec_parameter& parameter, uint32_t stored) {
  if (parameter.kind == NCAST_PARAMETER_POWER_OF_TWO && stored > 32) return false;
  const double value = value_of(parameter.kind, stored);
  // The limits as they would be stored: a float may be rounded down.
  return value >= value_of(parameter.kind, codec::stored(parameter.kind, parameter.least)) &&
         value <= value_of(parameter.kind, codec::stored(parameter.kind, parameter.most));
}

}  // namespace narrowcast::codec
