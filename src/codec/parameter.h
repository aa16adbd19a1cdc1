// The parameters of a codec: how an ncast_codec and a frame contain their values. For host and device code.
#pragma once

#include <cstdint>

#include "narrowcast/codec.h"

namespace narrowcast::codec {

// The bits of an ncast_codec that contain a parameter. 0 stands for the parameter's default.
struct ParameterField {
  unsigned shift, bits;
};

// The first parameter is in the lowest bits, and the others follow without gaps.
constexpr unsigned bits_of(ncast_parameter_kind kind) {
  switch (kind) {
    case NCAST_PARAMETER_POWER_OF_TWO: return 8;  // the exponent and 1
    case NCAST_PARAMETER_REAL: return 32;         // a float
    case NCAST_PARAMETER_CHOICE: return 8;        // the number of the choice, from 1
    default: return 16;                           // the number
  }
}

constexpr uint32_t get(ncast_codec codec, ParameterField field) {
  return static_cast<uint32_t>(codec >> field.shift & ((ncast_codec{1} << field.bits) - 1));
}
constexpr ncast_codec set(ncast_codec codec, ParameterField field, uint32_t value) {
  const ncast_codec mask = ((ncast_codec{1} << field.bits) - 1) << field.shift;
  return (codec & ~mask) | ncast_codec{value} << field.shift;
}

}  // namespace narrowcast::codec
