// Rows of floating-point numbers for the vectorized coder `window`: the bytes of window_reference.cc. It shares its
// loops over groups with the codec of blocks (codec/window/vectorized_rows.h). Everything is inlined into the functions
// of window_path.inc, which select the instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "store/rows/bit_stream.h"
#include "store/rows/extract.h"
#include "store/rows/load.h"
#include "store/rows/model.h"
#include "store/rows/window_groups.h"
#include "store/rows/window_placement.h"

namespace narrowcast::store::window {

constexpr size_t lane_elems = 32;

// Position of the value that an escape bit of a lane stands for: first * lanes of the group + second + lane * r.
template <const ValueType& type>
constexpr auto place_of_bit = [] {
  std::array<std::array<uint16_t, 2>, 32> table{};
  for (int bit = 0; bit < 32; ++bit) {
    const int sequence = bit % 8 * 4 + bit / 8;
    table[static_cast<size_t>(bit)] = {static_cast<uint16_t>(sequence / type.vector_elems() * type.vector_elems()),
                                       static_cast<uint16_t>(sequence % type.vector_elems())};
  }
  return table;
}();

// The escapes of a row: tokens of 4 bits, and far exponents.
template <const ValueType& type>
struct Escapes {
  alignas(64) uint8_t tokens[(max_row_escapes + 1 + group_elems) / 2 + 16];
  Exponent<type> far[max_row_escapes + 1 + group_elems];
};

// The code of each value and the token of each escape, 0 for other values. Returns whether any escape is far.
template <const ValueType& type>
NARROWCAST_INLINE bool find_codes(const Placement& window, int count, Scratch<type>& __restrict scratch) {
  using Number = Exponent<type>;
  // Differences below 0 wrap around to numbers that are too large for a token: the numbers of tokens are limited to
  // exponents that exist.
  const int below = std::min(window.base, below_tokens);
  const int above_base = window.base + (1 << window.width) - 1;
  const int above = std::min(above_tokens, (1 << type.exponent_bits) - above_base);
  const auto base = static_cast<Number>(window.base), last = static_cast<Number>((1 << window.width) - 1);
  const auto below_base = static_cast<Number>(window.base - below), below_count = static_cast<Number>(below);
  const auto above_first = static_cast<Number>(above_base), above_count = static_cast<Number>(above);
  const auto to_below = static_cast<Number>(below_tokens - below);
  // Masks instead of conditions: compilers vectorize only those.
  constexpr Number all = static_cast<Number>(~Number{0}), none = 0;
  Number any_far = 0;
  for (int i = 0; i < count; ++i) {
    const Number exponent = scratch.exponents[i];
    const Number code = std::min(static_cast<Number>(exponent - base), last);
    scratch.codes[i] = static_cast<uint8_t>(code);
    const auto from_below = static_cast<Number>(exponent - below_base);
    const auto from_above = static_cast<Number>(exponent - above_first);
    const Number is_below = from_below < below_count ? all : none, is_above = from_above < above_count ? all : none;
    const Number is_zero = exponent == 0 ? all : none, is_escape = code == last ? all : none;
    const auto is_far = static_cast<Number>(is_escape & ~(is_below | is_above | is_zero));
    const auto near =
        static_cast<Number>((is_below & (from_below + to_below)) | (is_above & (from_above + below_tokens)));
    const auto token = static_cast<Number>((near & ~is_zero) | (is_zero & zero_token) | (is_far & far_token));
    scratch.tokens[i] = static_cast<uint8_t>(token & is_escape);
    any_far = static_cast<Number>(any_far | is_far);
  }
  return any_far != 0;
}

// The tokens of a lane in the order of its escape bits: 32 numbers of 4 bits.
template <const ValueType& type>
NARROWCAST_INLINE void order_tokens(int lane_count, Scratch<type>& __restrict scratch) {
  for (int lane = 0; lane < lane_count; ++lane) {
    const Words words = load_words<type>(scratch.tokens, lane, lane_count);
    uint32_t pairs[4];
    for (int pair = 0; pair < 4; ++pair) pairs[pair] = words.of[2 * pair] | words.of[2 * pair + 1] << 4;
    for (int byte = 0; byte < 4; ++byte)
      scratch.ordered[lane][byte] = (pairs[0] >> 8 * byte & 0xff) | (pairs[1] >> 8 * byte & 0xff) << 8 |
                                    (pairs[2] >> 8 * byte & 0xff) << 16 | pairs[3] >> 8 * byte << 24;
  }
}

// Appends the tokens of a group's escapes, and returns their number.
template <typename Bits, const ValueType& type>
NARROWCAST_INLINE size_t put_tokens(const Scratch<type>& scratch, int lane_count, FastBitWriter& writer) {
  size_t count = 0;
  // Half a lane at a time: 16 tokens of 4 bits. Looking for the halves that have escapes would take longer.
  const auto* const escapes_of = reinterpret_cast<const uint8_t*>(scratch.escapes);
  const auto* const tokens_of = reinterpret_cast<const uint8_t*>(scratch.ordered);
  for (size_t half = 0; half < 2 * static_cast<size_t>(lane_count); ++half) {
    const uint64_t escapes = load<uint16_t>(escapes_of + half * sizeof(uint16_t));
    const uint64_t tokens = load<uint64_t>(tokens_of + half * sizeof(uint64_t));
    const int here = __builtin_popcountll(escapes);
    writer.put(Bits::extract(tokens, 15 * Bits::deposit(escapes, 0x1111111111111111)), 4 * here);
    count += static_cast<size_t>(here);
  }
  return count;
}

// Writes the far exponents of a group, and returns their number.
template <const ValueType& type>
NARROWCAST_INLINE size_t collect_far(const Scratch<type>& scratch, int lane_count, Exponent<type>* far) {
  size_t count = 0;
  for (int lane = 0; lane < lane_count; ++lane)
    for (uint32_t left = scratch.escapes[lane]; left != 0; left &= left - 1) {
      const auto& place = place_of_bit<type>[static_cast<size_t>(__builtin_ctz(left))];
      const int index = place[0] * lane_count + place[1] + lane * type.vector_elems();
      far[count] = scratch.exponents[index];
      count += scratch.tokens[index] == far_token ? 1 : 0;
    }
  return count;
}

// Packs the codes of a row's groups, and collects the escapes.
template <typename Path, const ValueType& type>
class GroupCoder {
 public:
  NARROWCAST_INLINE explicit GroupCoder(const Placement& window) : window_(window), tokens_(escapes_.tokens, 0) {}

  // The exponents of a group are in `scratch`. `codes` is the section of its codes.
  NARROWCAST_INLINE void add(Scratch<type>& scratch, int lane_count, uint8_t* codes) {
    const bool any_far = find_codes<type>(window_, lane_count * static_cast<int>(lane_elems), scratch);
    pack_fields<Path, type>(window_.width, scratch.codes, codes, scratch.escapes, lane_count);
    Path::template order_tokens<type>(lane_count, scratch);
    escaped_ += put_tokens<BitsOf<Path::set>, type>(scratch, lane_count, tokens_);
    if (any_far) far_ += collect_far<type>(scratch, lane_count, escapes_.far + far_);
  }
  NARROWCAST_INLINE size_t escaped() const { return escaped_; }
  NARROWCAST_INLINE size_t far() const { return far_; }

  // Writes the tokens and the far exponents. Returns their end.
  NARROWCAST_INLINE uint8_t* write(uint8_t* to) {
    tokens_.finish();
    std::memcpy(to, escapes_.tokens, (escaped_ + 1) / 2);
    to += (escaped_ + 1) / 2;
    std::memcpy(to, escapes_.far, far_ * sizeof escapes_.far[0]);
    return to + far_ * sizeof escapes_.far[0];
  }

 private:
  Placement window_;
  Escapes<type> escapes_;
  FastBitWriter tokens_;
  size_t escaped_ = 0, far_ = 0;
};

// Encodes `elems` values that follow the trim. `body` has `room` bytes. Returns the bytes of the body, or `room` if it
// does not fit.
template <typename Path, const ValueType& type, bool trimmed>
NARROWCAST_INLINE size_t encode_values(const WindowLayout& layout, const uint8_t* values, size_t elems, uint8_t* body,
                                       size_t room, uint32_t* header) {
  const size_t in_lanes = elems / lane_elems * lane_elems;
  const Placement window =
      in_lanes == 0 ? Placement{layout.max_width(), 0} : place_window<Path, type>(values, in_lanes);
  const size_t fixed = layout.fixed_bytes(elems, window.width);
  if (fixed >= room) return room;

  Scratch<type> scratch;
  typename Path::template Coder<type> coder(window);
  uint8_t* group = body;
  for (size_t first = 0; first < in_lanes; first += group_elems) {
    const int count = static_cast<int>(std::min<size_t>(in_lanes - first, group_elems));
    const int lane_count = count / static_cast<int>(lane_elems);
    const uint8_t* from = values + first * static_cast<size_t>(type.value_bytes);
    const Sections at = sections_of(layout, static_cast<size_t>(count), window.width);
    split_tails<type>(from, count, layout.tail_bytes, group);
    split_group<type, trimmed>(from, count, group + at.rest_bytes, scratch);
    if constexpr (Split<type, trimmed>::rest_bits != 0)
      Path::template pack<same_size<type>, Split<type, trimmed>::rest_bits>(scratch.rest_bits, group + at.rest_bits,
                                                                            nullptr, lane_count);
    coder.add(scratch, lane_count, group + at.codes);
    if (coder.escaped() > max_row_escapes) return room;
    group += at.end;
  }
  const size_t bytes = layout.body_bytes(elems, window.width, coder.escaped(), coder.far());
  if (bytes >= room) return room;

  const auto coded_bytes = static_cast<size_t>(layout.coded_bytes());
  for (size_t i = in_lanes; i < elems; ++i, group += coded_bytes) {
    const uint64_t coded = uint64_t{load_elem<type>(values, i)} >> layout.low_bits;
    std::memcpy(group, &coded, coded_bytes);
  }
  group = coder.write(group);
  // Padding. `room` is another word at least.
  const uint32_t zeros = 0;
  std::memcpy(group, &zeros, sizeof zeros);
  *header = static_cast<uint32_t>(window.width) << row_width_shift |
            static_cast<uint32_t>(window.base) << row_base_shift |
            static_cast<uint32_t>(coder.escaped()) << row_escapes_shift;
  return bytes;
}

template <typename Path, const ValueType& type, bool trimmed>
NARROWCAST_INLINE bool decode_values(const WindowLayout& layout, uint64_t low, uint32_t header, const uint8_t* body,
                                     size_t body_bytes, size_t elems, uint8_t* values) {
  const int width = static_cast<int>(header >> row_width_shift & row_width_mask);
  const int base = static_cast<int>(header >> row_base_shift & row_base_mask);
  const size_t escapes = header >> row_escapes_shift;
  if (width < 1 || width > layout.max_width() || base > (1 << type.exponent_bits) - (1 << width)) return false;
  if (layout.body_bytes(elems, width, escapes, 0) > body_bytes) return false;
  const size_t in_lanes = elems / lane_elems * lane_elems;
  const uint8_t* tokens = body + layout.fixed_bytes(elems, width);
  const uint8_t* far = tokens + (escapes + 1) / 2;
  size_t far_escapes = 0;
  for (size_t i = 0; i < escapes / 2; ++i)
    far_escapes += ((tokens[i] & 15) == far_token ? 1u : 0u) + (tokens[i] >> 4 == far_token ? 1u : 0u);
  if (escapes % 2 != 0) far_escapes += (tokens[escapes / 2] & 15) == far_token ? 1 : 0;
  if (layout.body_bytes(elems, width, escapes, far_escapes) > body_bytes) return false;

  Exponent<type> exponent_of_token[16];
  for (int token = 0; token < 16; ++token) {
    const int exponent =
        token < below_tokens ? base - below_tokens + token : base + (1 << width) - 1 + token - below_tokens;
    exponent_of_token[token] = static_cast<Exponent<type>>(static_cast<uint32_t>(exponent) & exponent_mask<type>);
  }
  exponent_of_token[zero_token] = 0;

  Scratch<type> scratch;
  size_t used = 0;
  const uint8_t* group = body;
  for (size_t first = 0; first < in_lanes; first += group_elems) {
    const int count = static_cast<int>(std::min<size_t>(in_lanes - first, group_elems));
    const int lane_count = count / static_cast<int>(lane_elems);
    const Sections at = sections_of(layout, static_cast<size_t>(count), width);
    if constexpr (sizeof(Exponent<type>) == 1) {
      unpack_fields<Path, type>(width, group + at.codes, base, scratch.exponents, scratch.escapes, lane_count);
    } else {
      unpack_fields<Path, type>(width, group + at.codes, 0, scratch.codes, scratch.escapes, lane_count);
      for (int i = 0; i < count; ++i) scratch.exponents[i] = static_cast<Exponent<type>>(scratch.codes[i] + base);
    }
    for (int lane = 0; lane < lane_count; ++lane)
      for (uint32_t left = scratch.escapes[lane]; left != 0; left &= left - 1) {
        if (used == escapes) return false;
        const int token = tokens[used / 2] >> used % 2 * 4 & 15;
        ++used;
        Exponent<type> exponent = exponent_of_token[token];
        if (token == far_token) {
          std::memcpy(&exponent, far, sizeof exponent);
          exponent = static_cast<Exponent<type>>(exponent & exponent_mask<type>);
          far += sizeof exponent;
        }
        const auto& place = place_of_bit<type>[static_cast<size_t>(__builtin_ctz(left))];
        scratch.exponents[place[0] * lane_count + place[1] + lane * type.vector_elems()] = exponent;
      }
    if constexpr (Split<type, trimmed>::rest_bits != 0)
      Path::template unpack<same_size<type>, Split<type, trimmed>::rest_bits>(group + at.rest_bits, 0,
                                                                              scratch.rest_bits, nullptr, lane_count);
    join_group<type, trimmed>(group, count, layout.tail_bytes, low, group + at.rest_bytes, scratch,
                              values + first * static_cast<size_t>(type.value_bytes));
    group += at.end;
  }
  if (used != escapes) return false;

  const auto coded_bytes = static_cast<size_t>(layout.coded_bytes());
  for (size_t i = in_lanes; i < elems; ++i, group += coded_bytes) {
    uint64_t coded = 0;
    std::memcpy(&coded, group, coded_bytes);
    const auto elem = static_cast<Elem<type>>(coded << layout.low_bits | low);
    std::memcpy(values + i * sizeof elem, &elem, sizeof elem);
  }
  return true;
}

// Whether all values have the low bits of the trim.
template <const ValueType& type>
NARROWCAST_INLINE bool follow_trim(const uint8_t* values, size_t elems, const Trim& trim) {
  const auto mask = static_cast<Elem<type>>((uint64_t{1} << trim.low_bits) - 1);
  const auto low = static_cast<Elem<type>>(trim.low);
  Elem<type> differs = 0;
  for (size_t i = 0; i < elems; ++i)
    differs = static_cast<Elem<type>>(differs | ((load_elem<type>(values, i) & mask) ^ low));
  return differs == 0;
}

}  // namespace narrowcast::store::window
