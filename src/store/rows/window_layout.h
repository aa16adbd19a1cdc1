// How the coder `window` lays out the values of a row. The specification is docs/format/rows.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/window/format.h"
#include "store/rows/format.h"

namespace narrowcast::store {

using codec::window::group_elems;
using codec::window::group_words;

// A value after the trim, split as in codec/window/format.h.
struct WindowLayout {
  int value_bytes;  // of the value before the trim
  int low_bits;     // removed by the trim
  int exponent_bits;
  int tail_bytes;
  int rest_bytes;
  int rest_bits;

  constexpr int coded_bits() const { return 8 * value_bytes - low_bits; }
  constexpr int coded_bytes() const { return (coded_bits() + 7) / 8; }  // of a value that is stored whole
  constexpr int mantissa_bits() const { return coded_bits() - 8 * tail_bytes - 1 - exponent_bits; }
  constexpr int vector_elems() const { return codec::window::vector_bytes / value_bytes; }
  constexpr int max_width() const { return std::min(exponent_bits, 5); }
  constexpr int far_bytes() const { return exponent_bits > 8 ? 2 : 1; }
  // One lane of a group, 32 values.
  constexpr size_t lane_bytes(int width) const {
    const int bytes = codec::window::lanes * (tail_bytes + rest_bytes) + 4 * (rest_bits + width);
    return static_cast<size_t>(bytes);
  }
  // The sections of `elems` values before the tokens.
  constexpr size_t fixed_bytes(size_t elems, int width) const {
    return elems / codec::window::lanes * lane_bytes(width) +
           elems % codec::window::lanes * static_cast<size_t>(coded_bytes());
  }
  constexpr size_t body_bytes(size_t elems, int width, size_t escapes, size_t far_escapes) const {
    return aligned4(fixed_bytes(elems, width) + (escapes + 1) / 2 + far_escapes * static_cast<size_t>(far_bytes()));
  }
};

// `dtype` and `low_bits` must satisfy window_allows().
constexpr WindowLayout window_layout(ncast_dtype dtype, int low_bits) {
  const codec::window::ValueType type = codec::window::value_type(dtype);
  WindowLayout layout{type.value_bytes, low_bits, type.exponent_bits, type.tail_bytes, type.rest_bytes, type.rest_bits};
  if (dtype == NCAST_FLOAT16 && low_bits != 0)
    layout.rest_bits = 0;  // eight bits of the rest remain
  else
    layout.tail_bytes -= low_bits / 8;
  return layout;
}

// Fields of the header word.
inline constexpr int row_width_shift = 3;
inline constexpr uint32_t row_width_mask = 0x7;
inline constexpr int row_base_shift = 6;
inline constexpr uint32_t row_base_mask = 0x7ff;
inline constexpr int row_escapes_shift = 17;
inline constexpr uint32_t max_row_escapes = 0x7fff;

// How the encoder samples a row to choose base and width. Decoders do not depend on it.
inline constexpr size_t max_row_samples = 256;
inline constexpr size_t sample_quarters = 4;
// Bits of a token, and two more where that makes rows hardly longer: decoders take more time for escapes than for
// codes.
constexpr int escape_cost(int exponent_bits, size_t samples) { return exponent_bits == 8 && samples >= 128 ? 6 : 4; }

}  // namespace narrowcast::store
