// Constants of the codec `window`. The specification is docs/format/window.md.
#pragma once

#include <cstdint>

#include "../frame/layout.h"
#include "narrowcast/types.h"

namespace narrowcast::codec::window {

// A block consists of groups of 1024 values and is divided among 32 lanes. Each lane holds 32 values of each group, in
// 8 words of 4 bytes, one byte per value.
inline constexpr int lanes = 32;
inline constexpr int group_elems = 1024;
inline constexpr int group_words = 8;
inline constexpr int row_bytes = lanes * 4;  // one word of each lane
inline constexpr int vector_bytes = 16;      // of adjacent values of one lane

// How the values of a type are split. The low `tail_bytes` bytes are stored unchanged. The remaining high bits are the
// head: sign, exponent and upper mantissa bits. The head without its exponent is the rest. `rest_bytes` is 1 if eight
// bits of the rest are stored as a byte; the other `rest_bits` bits are packed.
//
// A trimmed type, made by trimmed(), stores only the upper bits of sign and mantissa, as a narrower type does. Its
// members give sizes and offsets; heads are those of the type that was trimmed.
struct ValueType {
  int value_bytes;
  int exponent_bits;
  int tail_bytes;
  int rest_bytes;
  int rest_bits;

  // The number of bits that are stored of sign and mantissa, and the number of low mantissa bits that are not.
  constexpr int kept_bits() const { return 8 * (tail_bytes + rest_bytes) + rest_bits; }
  constexpr int trimmed_bits() const { return 8 * value_bytes - exponent_bits - kept_bits(); }
  // Whether trimmed(kept) is valid: the kept bits are those of bfloat16, float16 or float32, and the type has more.
  constexpr bool can_keep(int kept) const { return (kept == 8 || kept == 11 || kept == 24) && kept < kept_bits(); }
  constexpr ValueType trimmed(int kept) const {
    return {value_bytes, exponent_bits, kept == 24 ? 2 : 0, 1, kept == 11 ? 3 : 0};
  }
  // The low bits of a value that trimmed(kept) does not store.
  constexpr uint64_t trim_mask(int kept) const { return (uint64_t{1} << trimmed(kept).trimmed_bits()) - 1; }
  // The low bits that no trimmed type stores; 0 if the type has no trimmed types.
  constexpr uint64_t least_trim_mask() const {
    return can_keep(24) ? trim_mask(24) : can_keep(11) ? trim_mask(11) : can_keep(8) ? trim_mask(8) : 0;
  }
  // The fewest bits that can be kept of values that have only zeros where `used` has; 0 if all must be.
  constexpr int least_kept(uint64_t used) const {
    return can_keep(8) && (used & trim_mask(8)) == 0     ? 8
           : can_keep(11) && (used & trim_mask(11)) == 0 ? 11
           : can_keep(24) && (used & trim_mask(24)) == 0 ? 24
                                                         : 0;
  }

  constexpr int head_bits() const { return 8 * (value_bytes - tail_bytes); }
  constexpr int mantissa_bits() const { return head_bits() - 1 - exponent_bits; }  // in the head
  constexpr int vector_elems() const { return vector_bytes / value_bytes; }
  constexpr int block_elems() const { return value_bytes >= 4 ? group_elems : 4 * group_elems / value_bytes; }
  constexpr int groups() const { return block_elems() / group_elems; }
  constexpr int block_bytes() const { return block_elems() * value_bytes; }
  constexpr int max_width() const { return exponent_bits < 5 ? exponent_bits : 5; }
  constexpr int far_bytes() const { return exponent_bits > 8 ? 2 : 1; }
  // Byte offsets of the payload's sections, in order. The escapes begin where the codes end.
  constexpr int rest_byte_offset() const { return tail_bytes * block_elems(); }
  constexpr int rest_bit_offset() const { return rest_byte_offset() + rest_bytes * block_elems(); }
  constexpr int code_offset() const { return rest_bit_offset() + rest_bits * row_bytes * groups(); }
  constexpr int escape_offset(int width) const { return code_offset() + width * row_bytes * groups(); }
  constexpr int payload_bytes(int width, int escapes, int far_escapes) const {
    const int tokens = static_cast<int>(static_cast<unsigned>(escapes + 1) / 2);
    const int used = escape_offset(width) + tokens + far_escapes * far_bytes() + 4;
    return static_cast<int>(format::aligned(static_cast<uint64_t>(used)));
  }
};

inline constexpr ValueType bfloat16{2, 8, 0, 1, 0};
inline constexpr ValueType float16{2, 5, 0, 1, 3};
inline constexpr ValueType float32{4, 8, 2, 1, 0};
inline constexpr ValueType float64{8, 11, 6, 0, 5};
inline constexpr ValueType float8_e4m3{1, 4, 0, 0, 4};
inline constexpr ValueType float8_e5m2{1, 5, 0, 0, 3};

// The value type of a dtype. value_bytes is 0 if `window` does not support the dtype.
constexpr ValueType value_type(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_BFLOAT16: return bfloat16;
    case NCAST_FLOAT16: return float16;
    case NCAST_FLOAT32: return float32;
    case NCAST_FLOAT64: return float64;
    case NCAST_FLOAT8_E4M3: return float8_e4m3;
    case NCAST_FLOAT8_E5M2: return float8_e5m2;
    default: return {0, 0, 0, 0, 0};
  }
}

// The header word, the last four bytes of a payload: width | base << 3 | escapes << 14 | kept << 27. `kept` is 0 if the
// type is not trimmed, otherwise its kept_bits().
inline constexpr int base_shift = 3;
inline constexpr int escapes_shift = 14;
inline constexpr int kept_shift = 27;
inline constexpr uint32_t width_mask = 0x7;
inline constexpr uint32_t base_mask = 0x7ff;
inline constexpr uint32_t escapes_mask = 0x1fff;

// Escape tokens, four bits each.
inline constexpr int below_tokens = 10;  // 0..9: exponents base - 10 .. base - 1
inline constexpr int above_tokens = 4;   // 10..13: exponents after the window's last
inline constexpr int zero_token = 14;    // exponent 0
inline constexpr int far_token = 15;     // the exponent is in the far list

// How the encoder chooses base and width. Decoders do not depend on these.
inline constexpr int samples_per_lane = 4;
inline constexpr int samples = lanes * samples_per_lane;
inline constexpr int bins = 32;
inline constexpr int bins_below_anchor = 20;
inline constexpr int escape_cost_bits = 12;  // a token, a share of the far exponents, and an allowance for time

}  // namespace narrowcast::codec::window
