// The irregular part of coding a block, for vectorized.cc: placing the window and handling the values outside it. As in
// vectorized_rows.h, everything is inlined into the function that selects the instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "codec/window/vectorized_rows.h"

namespace narrowcast::codec::window::rows {

struct Placement {
  int width;  // 0: store the block raw
  int base;
};

// The encoder's rule in docs/format/window.md. trimmed_bits: of each value, which only a raw block stores.
template <const ValueType& type>
NARROWCAST_INLINE Placement place_window(const uint8_t* values, int trimmed_bits) {
  uint16_t sample[samples_per_lane][lanes];
  for (int i = 0; i < samples_per_lane; ++i)
    for (int lane = 0; lane < lanes; ++lane) {
      const int index =
          i * (type.block_elems() / samples_per_lane) + lane * type.vector_elems() + (lane + i) % type.vector_elems();
      sample[i][lane] = static_cast<uint16_t>(exponent_of<type>(head_of<type>(values, index)));
    }

  uint16_t anchor = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    uint16_t least = sample[0][lane];
    for (int i = 1; i < samples_per_lane; ++i) least = std::min(least, sample[i][lane]);
    anchor = std::max(anchor, least);
  }
  const auto lowest = static_cast<uint16_t>(std::max(anchor - bins_below_anchor, 0));

  // This is a separate loop because a minimum next to the increments compiles to branches. Values below the lowest bin
  // wrap around; they and the values above the highest bin are counted in an extra bin, which is never read.
  uint16_t bin_of[samples_per_lane][lanes];
  for (int i = 0; i < samples_per_lane; ++i)
    for (int lane = 0; lane < lanes; ++lane)
      bin_of[i][lane] = std::min<uint16_t>(static_cast<uint16_t>(sample[i][lane] - lowest), bins);
  // One histogram for each quarter of the samples: neighbours often share a bin, and with a single histogram their
  // increments would wait for each other.
  uint32_t histogram[samples_per_lane][bins + 1] = {};
  for (int lane = 0; lane < lanes; ++lane)
    for (int i = 0; i < samples_per_lane; ++i) ++histogram[i][bin_of[i][lane]];

  // below[b]: samples in the bins before b. A window may extend past the last bin.
  uint32_t below[2 * bins];
  uint32_t total = 0;
  for (int bin = 0; bin < bins; ++bin) {
    below[bin] = total;
    for (int i = 0; i < samples_per_lane; ++i) total += histogram[i][bin];
  }
  for (int bin = bins; bin < 2 * bins; ++bin) below[bin] = total;

  Placement best{0, 0};
  int best_cost = (type.exponent_bits + trimmed_bits) * samples;
  for (int width = type.max_width(); width >= 1; --width) {
    const int span = (1 << width) - 1;
    // Coverage in the high part, the reversed bin number in the low part: among equals the first bin wins.
    uint32_t best_key = 0;
    for (int bin = 0; bin < bins; ++bin) {
      const uint32_t covered = below[bin + span] - below[bin];
      best_key = std::max(best_key, covered * bins + static_cast<uint32_t>(bins - 1 - bin));
    }
    const int covered = static_cast<int>(best_key / bins), first = bins - 1 - static_cast<int>(best_key % bins);
    const int cost = width * samples + escape_cost_bits * (samples - covered);
    if (cost < best_cost) {
      best_cost = cost;
      best = {width, std::min(lowest + first, (1 << type.exponent_bits) - (1 << width))};
    }
  }
  return best;
}

// Maps a bit number in a block's escape bits to the index of the value.
template <const ValueType& type>
constexpr auto index_of_bit = [] {
  std::array<uint16_t, static_cast<size_t>(type.block_elems())> table{};
  for (int bit = 0; bit < type.block_elems(); ++bit) {
    const int word = bit % 8, byte = bit / 8 % 4, group = bit / 32 % type.groups(), lane = bit / 32 / type.groups();
    const int sequence = word * 4 + byte;
    table[static_cast<size_t>(bit)] = static_cast<uint16_t>(
        group * group_elems + (sequence / type.vector_elems() * lanes + lane) * type.vector_elems() +
        sequence % type.vector_elems());
  }
  return table;
}();

// Bit masks of the escaped values, by [group][lane], as the vector loops produce them.
template <const ValueType& type>
using EscapeBits = uint32_t[type.groups()][lanes];

// The numbers of the set bits in EscapeBits, in the order of the escapes.
template <const ValueType& type>
struct EscapeList {
  uint16_t bit[type.block_elems() + 64];  // the loop below writes ahead of the count
  int count;
};

template <const ValueType& type>
NARROWCAST_INLINE void list_escapes(const EscapeBits<type>& bits, EscapeList<type>& list) {
  constexpr int words = type.block_elems() / 64;
  uint32_t halves[2 * words];
  for (int lane = 0; lane < lanes; ++lane)
    for (int group = 0; group < type.groups(); ++group) halves[lane * type.groups() + group] = bits[group][lane];

  uint16_t* next = list.bit;
  for (int word = 0; word < words; ++word) {
    uint64_t left = static_cast<uint64_t>(halves[2 * word + 1]) << 32 | halves[2 * word];
    const int count = __builtin_popcountll(left);
    // Always process eight bits: a loop that ends at the last bit would mispredict in almost every word.
    for (int done = 0; done < count; done += 8) {
      for (int i = 0; i < 8; ++i) {
        next[done + i] = static_cast<uint16_t>(word * 64 + (left != 0 ? __builtin_ctzll(left) : 0));
        left &= left - 1;
      }
    }
    next += count;
  }
  list.count = static_cast<int>(next - list.bit);
}

// token[i] is the token of escape i; far[i] is the exponent of the i-th escape with a far token.
template <const ValueType& type>
struct Tokens {
  alignas(64) uint8_t token[type.block_elems() + 1];
  uint16_t far[type.block_elems() + 1];
  int far_count;
};

template <const ValueType& type>
NARROWCAST_INLINE void make_tokens(const Placement& window, const PerValue<type, Exponent<type>>& exponents,
                                   const EscapeList<type>& list, Tokens<type>& tokens) {
  constexpr int exponent_count = 1 << type.exponent_bits;
  alignas(64) uint8_t token_of[exponent_count];
  std::memset(token_of, far_token, sizeof token_of);
  for (int i = 0; i < below_tokens; ++i) {
    const int exponent = window.base - below_tokens + i;
    if (exponent >= 0) token_of[exponent] = static_cast<uint8_t>(i);
  }
  for (int i = 0; i < above_tokens; ++i) {
    const int exponent = window.base + (1 << window.width) - 1 + i;
    if (exponent < exponent_count) token_of[exponent] = static_cast<uint8_t>(below_tokens + i);
  }
  token_of[0] = zero_token;

  int far_count = 0;
  for (int i = 0; i < list.count; ++i) {
    const Exponent<type> exponent = exponents.of[index_of_bit<type>[list.bit[i]]];
    const uint8_t token = token_of[exponent];
    tokens.token[i] = token;
    tokens.far[far_count] = exponent;
    far_count += token == far_token;
  }
  tokens.token[list.count] = 0;  // the other half of the last byte when the count is odd
  tokens.far_count = far_count;
}

// Writes the sections after the codes. `bytes` is the payload's size.
template <const ValueType& type>
NARROWCAST_INLINE void store_tokens(const ValueType& stored, const Placement& window, const EscapeList<type>& list,
                                    const Tokens<type>& tokens, uint8_t* payload, int bytes) {
  const int token_bytes = (list.count + 1) / 2;
  const int token_offset = stored.escape_offset(window.width);
  uint8_t* __restrict pairs = payload + token_offset;
  for (int i = 0; i < token_bytes; ++i)
    pairs[i] = static_cast<uint8_t>(tokens.token[2 * i] | tokens.token[2 * i + 1] << 4);

  const int far_offset = bytes - 4 - tokens.far_count * type.far_bytes();
  std::memset(pairs + token_bytes, 0, static_cast<size_t>(far_offset - token_offset - token_bytes));
  for (int i = 0; i < tokens.far_count; ++i)
    std::memcpy(payload + bytes - 4 - (i + 1) * type.far_bytes(), &tokens.far[i], type.far_bytes());

  const uint32_t kept = stored.trimmed_bits() == 0 ? 0 : static_cast<uint32_t>(stored.kept_bits());
  const uint32_t header = static_cast<uint32_t>(window.width) | static_cast<uint32_t>(window.base) << base_shift |
                          static_cast<uint32_t>(list.count) << escapes_shift | kept << kept_shift;
  std::memcpy(payload + bytes - 4, &header, sizeof header);
}

// Reads the tokens of `count` escapes, two from each byte.
template <const ValueType& type>
NARROWCAST_INLINE void load_tokens(const uint8_t* pairs, int count, Tokens<type>& tokens) {
  for (int i = 0; i < (count + 1) / 2; ++i) {
    tokens.token[2 * i] = pairs[i] & 15;
    tokens.token[2 * i + 1] = pairs[i] >> 4;
  }
  uint32_t far_count = 0;
  for (int i = 0; i < count; ++i) far_count += tokens.token[i] == far_token;
  tokens.far_count = static_cast<int>(far_count);
}

// Sets the exponents of the escaped values. The payload's size must have been checked against its tokens.
template <const ValueType& type>
NARROWCAST_INLINE void apply_tokens(const Placement& window, const EscapeList<type>& list, const Tokens<type>& tokens,
                                    const uint8_t* payload_end, PerValue<type, Exponent<type>>& exponents) {
  Exponent<type> exponent_of_token[16];
  for (int token = 0; token < 16; ++token) {
    const int exponent = token < below_tokens ? window.base - below_tokens + token
                                              : window.base + (1 << window.width) - 1 + token - below_tokens;
    exponent_of_token[token] = static_cast<Exponent<type>>(static_cast<uint32_t>(exponent) & exponent_mask<type>);
  }
  exponent_of_token[zero_token] = 0;

  // Loaded even if unused. The load is in bounds because the payload has other sections before the far list.
  const uint8_t* next_far = payload_end - 4 - type.far_bytes();
  for (int i = 0; i < list.count; ++i) {
    const uint8_t token = tokens.token[i];
    Exponent<type> far;
    std::memcpy(&far, next_far, sizeof far);
    const bool is_far = token == far_token;
    next_far -= is_far ? type.far_bytes() : 0;
    exponents.of[index_of_bit<type>[list.bit[i]]] =
        is_far ? static_cast<Exponent<type>>(far & exponent_mask<type>) : exponent_of_token[token];
  }
}

}  // namespace narrowcast::codec::window::rows
