// The regular part of coding a block, for vectorized.cc: converts values to sections and back. Its branchless loops
// over arrays in the L1 cache are vectorized by the compiler for the caller's instruction set.
//
// Every function must be inlined, because the instruction set is that of the caller. Lambdas and calls of ordinary
// functions therefore cannot be used here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "codec/window/format.h"

#define NARROWCAST_INLINE inline __attribute__((always_inline))

namespace narrowcast::codec::window::rows {

static_assert(std::endian::native == std::endian::little, "sections are read and written as little-endian words");

// Users' pointers and the sections may be unaligned. Do not use `auto` for these types: it drops the attributes.
typedef uint16_t Unaligned16 __attribute__((aligned(1), may_alias));
typedef uint32_t Unaligned32 __attribute__((aligned(1), may_alias));
typedef uint64_t Unaligned64 __attribute__((aligned(1), may_alias));

constexpr uint32_t in_each_byte(int value) { return 0x01010101u * static_cast<uint32_t>(value); }

template <const ValueType& type>
using Exponent = std::conditional_t<(type.exponent_bits > 8), uint16_t, uint8_t>;
template <const ValueType& type>
using Head = std::conditional_t<(type.head_bits() > 8), uint16_t, uint8_t>;

template <const ValueType& type>
constexpr uint32_t exponent_mask = (1u << type.exponent_bits) - 1;
template <const ValueType& type>
constexpr uint32_t mantissa_mask = (1u << type.mantissa_bits()) - 1;

// A trimmed type, as an object that can be a template argument.
template <const ValueType& type, int kept>
inline constexpr ValueType trimmed_type = type.trimmed(kept);

// One field for each value of a block, in the order of the values.
template <const ValueType& type, typename Field = uint8_t>
struct alignas(64) PerValue {
  Field of[type.block_elems()];
};

template <const ValueType& type>
NARROWCAST_INLINE uint32_t head_of(const uint8_t* values, int index) {
  const uint8_t* head = values + index * type.value_bytes + type.tail_bytes;
  if constexpr (sizeof(Head<type>) == 1)
    return *head;
  else
    return *reinterpret_cast<const Unaligned16*>(head);
}

template <const ValueType& type>
NARROWCAST_INLINE uint32_t exponent_of(uint32_t head) {
  return head >> type.mantissa_bits() & exponent_mask<type>;
}

// The bits of a wide value.
template <const ValueType& type>
using Wide = std::conditional_t<type.value_bytes == 8, uint64_t, uint32_t>;

// The bits of the mantissa in the rest byte and the packed rest bits.
template <const ValueType& stored>
constexpr int rest_mantissa_bits = stored.kept_bits() - 8 * stored.tail_bytes - 1;
// Whether the rest is part of the head. Trimmed wide types have fewer tail bits, and more bits in the rest.
template <const ValueType& type, const ValueType& stored>
constexpr bool rest_is_in_head = rest_mantissa_bits<stored> <= type.mantissa_bits();

// The type as it is stored: with the fewest bits that it can keep if all others are zero.
template <const ValueType& type>
NARROWCAST_INLINE ValueType stored_type(const uint8_t* values) {
  if constexpr (type.least_trim_mask() == 0) return type;
  // Most blocks that cannot be trimmed show it in their first piece.
  constexpr int piece = 256;
  uint64_t used = 0;
  for (int begin = 0; begin < type.block_bytes(); begin += piece) {
    for (int at = begin; at < begin + piece; at += 8) used |= *reinterpret_cast<const Unaligned64*>(values + at);
    for (int bits = 32; bits >= 8 * type.value_bytes; bits /= 2) used |= used >> bits;
    if ((used & type.least_trim_mask()) != 0) return type;
  }
  return type.trimmed(type.least_kept(used));
}

// Splits the values: writes tails and rest bytes to the payload, exponents and rest bits to arrays. stored: the type as
// it is stored, trimmed or not.
template <const ValueType& type, const ValueType& stored>
NARROWCAST_INLINE void split_values(const uint8_t* values, uint8_t* payload,
                                    PerValue<type, Exponent<type>>& __restrict exponents,
                                    PerValue<type>& __restrict rest_bits) {
  constexpr int trim = stored.trimmed_bits(), mantissa = rest_mantissa_bits<stored>;
  PerValue<type, Head<type>> copied, rests;
  const uint8_t* heads = values;
  if constexpr (type.value_bytes > 2) {
    for (int i = 0; i < type.block_elems(); ++i) {
      Wide<type> value;
      std::memcpy(&value, values + i * type.value_bytes, sizeof value);
      // Six bytes are written as eight. The next tail or section overwrites the last two.
      if constexpr (stored.tail_bytes == 6)
        *reinterpret_cast<Unaligned64*>(payload + 6 * i) = value;
      else if constexpr (stored.tail_bytes == 2)
        reinterpret_cast<Unaligned16*>(payload)[i] = static_cast<uint16_t>(value >> trim);
      copied.of[i] = static_cast<uint16_t>(value >> 8 * type.tail_bytes);
      if constexpr (!rest_is_in_head<type, stored>)
        rests.of[i] = static_cast<uint16_t>((value >> (8 * type.value_bytes - 1 - mantissa) & 1u << mantissa) |
                                            (value >> (trim + 8 * stored.tail_bytes) & ((1u << mantissa) - 1)));
    }
    heads = reinterpret_cast<const uint8_t*>(copied.of);
  }

  uint8_t* __restrict rest_bytes = payload + stored.rest_byte_offset();
  for (int i = 0; i < type.block_elems(); ++i) {
    Head<type> head;
    std::memcpy(&head, heads + i * static_cast<int>(sizeof head), sizeof head);
    exponents.of[i] = static_cast<Exponent<type>>(exponent_of<type>(head));
    Head<type> rest;
    if constexpr (rest_is_in_head<type, stored>)
      rest = static_cast<Head<type>>((head >> (type.head_bits() - 1 - mantissa) & 1u << mantissa) |
                                     (head >> (type.mantissa_bits() - mantissa) & ((1u << mantissa) - 1)));
    else
      rest = rests.of[i];
    if constexpr (stored.rest_bytes != 0) rest_bytes[i] = static_cast<uint8_t>(rest);
    if constexpr (stored.rest_bits != 0) rest_bits.of[i] = static_cast<uint8_t>(rest >> 8 * stored.rest_bytes);
  }
}

// The inverse of split_values(). All bits of an exponent above exponent_bits must be zero.
template <const ValueType& type, const ValueType& stored>
NARROWCAST_INLINE void join_values(const uint8_t* payload, const PerValue<type, Exponent<type>>& __restrict exponents,
                                   const PerValue<type>& __restrict rest_bits, uint8_t* __restrict values) {
  constexpr int trim = stored.trimmed_bits(), mantissa = rest_mantissa_bits<stored>;
  PerValue<type, Head<type>> heads;  // or only rests, if these are not in the heads
  const uint8_t* __restrict rest_bytes = payload + stored.rest_byte_offset();
  for (int i = 0; i < type.block_elems(); ++i) {
    Head<type> rest = 0;
    if constexpr (stored.rest_bytes != 0) rest = rest_bytes[i];
    if constexpr (stored.rest_bits != 0)
      rest = static_cast<Head<type>>(rest | rest_bits.of[i] << 8 * stored.rest_bytes);
    Head<type> head = rest;
    if constexpr (rest_is_in_head<type, stored>)
      head = static_cast<Head<type>>((rest & 1u << mantissa) << (type.head_bits() - 1 - mantissa) |
                                     exponents.of[i] << type.mantissa_bits() |
                                     (rest & ((1u << mantissa) - 1)) << (type.mantissa_bits() - mantissa));
    if constexpr (type.value_bytes == 1)
      values[i] = head;
    else if constexpr (type.value_bytes == 2)
      reinterpret_cast<Unaligned16*>(values)[i] = head;
    else
      heads.of[i] = head;
  }
  if constexpr (type.value_bytes > 2) {
    constexpr int all_mantissa = 8 * type.value_bytes - 1 - type.exponent_bits;
    for (int i = 0; i < type.block_elems(); ++i) {
      Wide<type> value = 0;
      // Reads two bytes more than the tail and shifts them out.
      if constexpr (stored.tail_bytes == 6)
        value = *reinterpret_cast<const Unaligned64*>(payload + 6 * i) << 16 >> 16;
      else if constexpr (stored.tail_bytes == 2)
        value = static_cast<Wide<type>>(reinterpret_cast<const Unaligned16*>(payload)[i]) << trim;
      if constexpr (rest_is_in_head<type, stored>)
        value |= static_cast<Wide<type>>(heads.of[i]) << 8 * type.tail_bytes;
      else
        value |= static_cast<Wide<type>>(exponents.of[i]) << all_mantissa |
                 static_cast<Wide<type>>(heads.of[i] >> mantissa) << (8 * type.value_bytes - 1) |
                 static_cast<Wide<type>>(heads.of[i] & ((1u << mantissa) - 1)) << (all_mantissa - mantissa);
      std::memcpy(values + i * type.value_bytes, &value, sizeof value);
    }
  }
}

// The functions below work on groups of fewer lanes, too: the last groups of rows (store/rows). Blocks have groups of
// 32 lanes only, which is a constant after inlining.

// The words of one lane in one group. Each byte of a word belongs to a different value.
struct Words {
  uint32_t of[group_words];
};

template <const ValueType& type>
NARROWCAST_INLINE Words load_words(const uint8_t* group, int lane, int lane_count) {
  Words words;
  if constexpr (type.vector_elems() >= 4) {
    constexpr int in_vector = type.vector_elems() / 4;
    const Unaligned32* from = reinterpret_cast<const Unaligned32*>(group);
    for (int word = 0; word < group_words; ++word)
      words.of[word] = from[(word / in_vector * lane_count + lane) * in_vector + word % in_vector];
  } else {
    const Unaligned16* from = reinterpret_cast<const Unaligned16*>(group);
    for (int word = 0; word < group_words; ++word)
      words.of[word] =
          static_cast<uint32_t>(from[(2 * word + 1) * lane_count + lane]) << 16 | from[2 * word * lane_count + lane];
  }
  return words;
}

template <const ValueType& type>
NARROWCAST_INLINE void store_words(const Words& words, uint8_t* group, int lane, int lane_count) {
  if constexpr (type.vector_elems() >= 4) {
    constexpr int in_vector = type.vector_elems() / 4;
    Unaligned32* to = reinterpret_cast<Unaligned32*>(group);
    for (int word = 0; word < group_words; ++word)
      to[(word / in_vector * lane_count + lane) * in_vector + word % in_vector] = words.of[word];
  } else {
    Unaligned16* to = reinterpret_cast<Unaligned16*>(group);
    for (int word = 0; word < group_words; ++word) {
      to[2 * word * lane_count + lane] = static_cast<uint16_t>(words.of[word]);
      to[(2 * word + 1) * lane_count + lane] = static_cast<uint16_t>(words.of[word] >> 16);
    }
  }
}

// The bits of a word's fields that are stored in one row of a packed section: `count` bits, from bit `field_bit` of the
// field, at bit `row_bit` of the row.
struct Piece {
  int field_bit;
  int count;
  int row_bit;
};
constexpr Piece piece_of(int width, int row, int word) {
  const int whole = 8 / width, spare = 8 % width;
  const int leftover = word - whole * width;
  if (leftover < 0) return {0, word / whole == row ? width : 0, word % whole * width};
  // The leftover fields are concatenated and split into runs of `spare` bits.
  const int begin = std::max(leftover * width, row * spare), end = std::min((leftover + 1) * width, (row + 1) * spare);
  return {begin - leftover * width, std::max(end - begin, 0), whole * width + begin - row * spare};
}

template <int width, int row, int word>
NARROWCAST_INLINE uint32_t word_to_row(const Words& words) {
  constexpr Piece piece = piece_of(width, row, word);
  if constexpr (piece.count == 0)
    return 0;
  else if constexpr (piece.count == width)
    return words.of[word] << piece.row_bit;
  else
    return (words.of[word] >> piece.field_bit & in_each_byte((1 << piece.count) - 1)) << piece.row_bit;
}

template <int width, int row, int word>
NARROWCAST_INLINE uint32_t row_to_word(uint32_t bits) {
  constexpr Piece piece = piece_of(width, row, word);
  if constexpr (piece.count == 0)
    return 0;
  else
    return (bits >> piece.row_bit & in_each_byte((1 << piece.count) - 1)) << piece.field_bit;
}

template <int width, int row, int... word>
NARROWCAST_INLINE uint32_t row_of(const Words& words, std::integer_sequence<int, word...>) {
  return (word_to_row<width, row, word>(words) | ...);
}
template <int width, int... row>
NARROWCAST_INLINE void store_rows(const Words& words, uint8_t* section, int lane, int lane_count,
                                  std::integer_sequence<int, row...>) {
  constexpr std::make_integer_sequence<int, group_words> each_word;
  ((reinterpret_cast<Unaligned32*>(section)[row * lane_count + lane] = row_of<width, row>(words, each_word)), ...);
}

template <int width, int word, int... row>
NARROWCAST_INLINE uint32_t word_of(const uint32_t* bits, std::integer_sequence<int, row...>) {
  return (row_to_word<width, row, word>(bits[row]) | ...);
}
template <int width, int... word>
NARROWCAST_INLINE Words load_rows(const uint8_t* section, int lane, int lane_count,
                                  std::integer_sequence<int, word...>) {
  uint32_t bits[width];
  for (int row = 0; row < width; ++row)
    bits[row] = reinterpret_cast<const Unaligned32*>(section)[row * lane_count + lane];
  return {{word_of<width, word>(bits, std::make_integer_sequence<int, width>{})...}};
}

// A bit mask of a lane's values in a group whose code is 2^width - 1. The bit number, byte * 8 + word, follows the
// order of the escapes.
template <int width>
NARROWCAST_INLINE uint32_t escapes_of(const Words& codes) {
  constexpr uint32_t to_top_bit = in_each_byte(0x80 - ((1 << width) - 1));
  uint32_t escapes = 0;
  for (int word = 0; word < group_words; ++word)
    escapes |= ((codes.of[word] + to_top_bit) & in_each_byte(0x80)) >> (7 - word);
  return escapes;
}

// Packs one group's fields of `width` bits. Stores a mask of escapes for each lane if `escapes` is not NULL.
template <const ValueType& type, int width>
NARROWCAST_INLINE void pack_group(const uint8_t* __restrict fields, uint8_t* __restrict section,
                                  uint32_t* __restrict escapes = nullptr, int lane_count = lanes) {
  for (int lane = 0; lane < lane_count; ++lane) {
    const Words words = load_words<type>(fields, lane, lane_count);
    if (escapes != nullptr) escapes[lane] = escapes_of<width>(words);
    store_rows<width>(words, section, lane, lane_count, std::make_integer_sequence<int, width>{});
  }
}

// The inverse of pack_group(). Adds `base`, which fits a byte, to every field.
template <const ValueType& type, int width>
NARROWCAST_INLINE void unpack_group(const uint8_t* __restrict section, int base, uint8_t* __restrict fields,
                                    uint32_t* __restrict escapes = nullptr, int lane_count = lanes) {
  const uint32_t bases = in_each_byte(base);
  for (int lane = 0; lane < lane_count; ++lane) {
    Words words = load_rows<width>(section, lane, lane_count, std::make_integer_sequence<int, group_words>{});
    if (escapes != nullptr) escapes[lane] = escapes_of<width>(words);
    for (int word = 0; word < group_words; ++word) words.of[word] += bases;
    store_words<type>(words, fields, lane, lane_count);
  }
}

template <const ValueType& type, int width>
NARROWCAST_INLINE void pack(const PerValue<type>& fields, uint8_t* section, uint32_t (*escapes)[lanes]) {
  for (int group = 0; group < type.groups(); ++group)
    pack_group<type, width>(fields.of + group * group_elems, section + group * width * row_bytes,
                            escapes != nullptr ? escapes[group] : nullptr);
}

template <const ValueType& type, int width>
NARROWCAST_INLINE void unpack(const uint8_t* section, int base, PerValue<type>& fields, uint32_t (*escapes)[lanes]) {
  for (int group = 0; group < type.groups(); ++group)
    unpack_group<type, width>(section + group * width * row_bytes, base, fields.of + group * group_elems,
                              escapes != nullptr ? escapes[group] : nullptr);
}

}  // namespace narrowcast::codec::window::rows
