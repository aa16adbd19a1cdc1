// Constants of the codec `abs`. The specification is docs/format/absolute.md.
#pragma once

#include <cstdint>

#include "../parameter.h"
#include "narrowcast/types.h"

namespace narrowcast::codec::absolute {

inline constexpr uint32_t groups = 32, group_elems = 32, block_elems = groups * group_elems;

// Byte offsets in a payload: the start, a mode for each group, the words of the groups.
inline constexpr uint32_t modes_offset = 4, words_offset = modes_offset + groups;
// A payload without modes and words: those of all groups are 0.
inline constexpr uint32_t constant_payload_bytes = 16;
constexpr uint32_t payload_bytes(uint32_t words) {
  return words == 0 ? constant_payload_bytes : (words_offset + 4 * words + 15) / 16 * 16;
}

// The mode of a group is the width of its differences in bits, or one of these.
inline constexpr uint32_t most_width = 32, repeated_mode = 64, raw_mode = 65;
constexpr bool is_mode(uint32_t mode) { return mode <= most_width || mode == repeated_mode || mode == raw_mode; }
constexpr uint32_t words_of(uint32_t mode, uint32_t value_bytes) {
  return mode == raw_mode ? group_elems * value_bytes / 4 : mode == repeated_mode ? value_bytes / 4 : mode;
}

constexpr bool is_supported(ncast_dtype dtype) { return dtype == NCAST_FLOAT32 || dtype == NCAST_FLOAT64; }

// The step between quantised values, and the largest error. It is below the bound, which may have been rounded up when
// it became a float32, and has 8 bits of mantissa, so that multiples below 2^16 are exact in float32.
struct Step {
  float error;

  // codec: its parameters are explicit.
  constexpr explicit Step(ncast_codec codec)
      : error(__builtin_bit_cast(float, get(codec, ParameterField{16, 32}) & 0xffff0000u)) {}
  constexpr float step() const { return 2 * error; }
};

// The largest magnitude of x / step that encoders quantise. Sums with the constants of a fast rounding are exact, and
// so are the integers as float32.
template <typename Float>
inline constexpr Float most_quotient = sizeof(Float) == 4 ? Float(1 << 21) : Float(1 << 30);

}  // namespace narrowcast::codec::absolute
