// Constants of the codec `dense`. The specification is docs/format/dense.md.
#pragma once

#include <cstdint>

#include "../frame/layout.h"
#include "narrowcast/types.h"

namespace narrowcast::codec::dense {

// A block consists of groups of 1024 values. A group is divided among 32 lanes, with 32 values each.
inline constexpr int lanes = 32;
inline constexpr int group_elems = 1024;
inline constexpr int plane_bytes = lanes * 4;  // a plane has one bit of each value of a group, a word for each lane
inline constexpr int vector_bytes = 16;        // of adjacent values of one lane

struct ValueType {
  int value_bytes;
  int exponent_bits;

  constexpr int rest_bits() const { return 8 * value_bytes - exponent_bits; }  // sign and mantissa
  constexpr int mantissa_bits() const { return rest_bits() - 1; }
  constexpr int exponent_mask() const { return (1 << exponent_bits) - 1; }
  constexpr int vector_elems() const { return vector_bytes / value_bytes; }
  constexpr int block_elems() const { return value_bytes >= 4 ? group_elems : 4 * group_elems / value_bytes; }
  constexpr int groups() const { return block_elems() / group_elems; }
  constexpr int block_bytes() const { return block_elems() * value_bytes; }
  // The end of a payload: a word for each group, then the last byte.
  constexpr int group_word_bytes() const { return exponent_bits > 8 ? 3 : 2; }
  constexpr int header_bytes() const { return groups() * group_word_bytes() + 1; }
  // Byte offsets of the sections, if `kept` bits of sign and mantissa are stored. The columns come first.
  constexpr int plane_offset(int kept) const { return kept / 8 * block_elems(); }
  constexpr int digit_offset(int kept) const { return plane_offset(kept) + kept % 8 * groups() * plane_bytes; }
  constexpr int stream_offset(int kept) const { return digit_offset(kept) + 2 * groups() * plane_bytes; }
  // Size of a payload with `stream_bits` bits in the stream and `far` far positions.
  constexpr int payload_bytes(int kept, int stream_bits, int far) const {
    const int stream_bytes = static_cast<int>(static_cast<unsigned>(stream_bits + 7) / 8);
    const int used = stream_offset(kept) + stream_bytes + far + header_bytes();
    return static_cast<int>(format::aligned(static_cast<uint64_t>(used)));
  }
};

inline constexpr ValueType bfloat16{2, 8};
inline constexpr ValueType float16{2, 5};
inline constexpr ValueType float32{4, 8};
inline constexpr ValueType float64{8, 11};
inline constexpr ValueType float8_e4m3{1, 4};
inline constexpr ValueType float8_e5m2{1, 5};

// The value type of a dtype. value_bytes is 0 if `dense` does not support the dtype.
constexpr ValueType value_type(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_BFLOAT16: return bfloat16;
    case NCAST_FLOAT16: return float16;
    case NCAST_FLOAT32: return float32;
    case NCAST_FLOAT64: return float64;
    case NCAST_FLOAT8_E4M3: return float8_e4m3;
    case NCAST_FLOAT8_E5M2: return float8_e5m2;
    default: return {0, 0};
  }
}

// Index in the group of a value of a lane, which is counted in address order. It is also the number of its bit in the
// word of the lane in a plane.
constexpr int index_in_group(const ValueType& type, int lane, int sequence) {
  return (sequence / type.vector_elems() * lanes + lane) * type.vector_elems() + sequence % type.vector_elems();
}

// A group word: code, order, base.
inline constexpr int order_shift = 3;
inline constexpr int base_shift = 8;
// The last byte: the number of trimmed bits, and whether rank 0 is exponent 0.
inline constexpr int trim_mask = 0x3f;
inline constexpr int zero_first_bit = 0x40;

// The code of a rank begins with a digit of two bits. Each digit below `single` is one rank; the other digits below 3
// are two ranks, told apart by an extra bit. Digit 3 is followed by ones and a zero. Each number of ones is a rank, or
// two ranks, told apart by a pair bit. `far_ones` ones are exponents without a rank.
struct Code {
  int single;  // 0 to 3
  int paired;  // 1 if there are pair bits
  constexpr int digit_ranks() const { return 6 - single; }
  constexpr int far_ones() const { return 16 >> paired; }
  constexpr int ranks() const { return digit_ranks() + 16; }
};
inline constexpr int codes = 8;
constexpr Code code_of(int number) { return {number & 3, number >> 2}; }
inline constexpr int most_ranks = 22;

// How exponents are ordered by rank. Rank 0 is the base. A rank is the next exponent above those of lower ranks if its
// bit is set, and the next one below them otherwise.
inline constexpr int orders = 32;
#define NARROWCAST_DENSE_ORDERS                                                                                       \
  0x0010, 0x0022, 0x0044, 0x0084, 0x0094, 0x0104, 0x0204, 0x0214, 0x0410, 0x0454, 0x0492, 0x0812, 0x1008, 0x1056,     \
      0x1084, 0x1108, 0x1112, 0x1152, 0x1224, 0x1256, 0x1294, 0x1444, 0x1452, 0x1824, 0x1910, 0x1912, 0x1944, 0x1a24, \
      0x1a4a, 0x1df4, 0x1efa, 0x1f5a
// The offset of a rank's exponent from the base.
constexpr int rank_offset(uint32_t order_bits, int rank) {
  int above = 0;
  for (int i = 1; i <= rank; ++i) above += static_cast<int>(order_bits >> i & 1);
  return (order_bits >> rank & 1) != 0 ? above : above - rank;
}

// A position is an exponent minus the base, modulo 256. In float64, this position is exponent 0, and the others are
// signed.
inline constexpr int zero_position = 128;

inline constexpr int most_escapes = 512;  // digits 3 in a group

// How the encoder chooses. Decoders do not depend on these.
inline constexpr int anchor_samples = 4;  // of each lane
inline constexpr int bins = 32;
inline constexpr int bins_below_anchor = 20;
inline constexpr int zeros_per_block = 16;  // zero_first if more than one value in so many is zero

}  // namespace narrowcast::codec::dense
