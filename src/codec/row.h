// A row of codecs.def, and access to the fields of an ncast_codec. Does not depend on the code of any codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "narrowcast/codec.h"

namespace narrowcast::codec {

inline constexpr int max_parameters = 3;
inline constexpr int dtype_count = NCAST_FLOAT8_E5M2 + 1;

enum class Exactness : uint8_t { exact, bounded };
enum class Payload : uint8_t { fixed, variable };

struct Row {
  uint8_t id;
  const char* name;
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

constexpr uint8_t id_of(ncast_codec codec) { return static_cast<uint8_t>(codec); }
constexpr uint16_t parameter_of(ncast_codec codec, size_t index) {
  return static_cast<uint16_t>(codec >> (16 + 16 * index));
}
constexpr ncast_codec with_parameter(ncast_codec codec, size_t index, uint16_t value) {
  const size_t shift = 16 + 16 * index;
  return (codec & ~(ncast_codec{0xffff} << shift)) | ncast_codec{value} << shift;
}

}  // namespace narrowcast::codec
