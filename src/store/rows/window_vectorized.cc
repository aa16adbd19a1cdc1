// The coder `window` with vector instructions: the bytes of window_reference.cc. It shares its loops over groups with
// the codec of blocks (codec/window/vectorized_rows.h). Everything is inlined into the functions that select the
// instruction set.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "codec/window/vectorized_rows.h"
#include "store/rows/fast.h"
#include "store/rows/window_layout.h"
#include "store/rows/zero_map.h"

namespace narrowcast::store {
namespace {

using namespace codec::window;
using namespace codec::window::rows;

constexpr size_t lane_elems = 32;
constexpr size_t slack = 64;  // buffers are read and written ahead

struct Placement {
  int width;
  int base;
};

template <const ValueType& type>
using Elem = std::conditional_t<
    type.value_bytes == 1, uint8_t,
    std::conditional_t<type.value_bytes == 2, uint16_t, std::conditional_t<type.value_bytes == 4, uint32_t, uint64_t>>>;

template <const ValueType& type>
NARROWCAST_INLINE Elem<type> load_elem(const uint8_t* values, size_t index) {
  Elem<type> elem;
  std::memcpy(&elem, values + index * sizeof elem, sizeof elem);
  return elem;
}

// Bits of an element below the exponent. A trim only removes some of them.
template <const ValueType& type>
constexpr int exponent_shift = 8 * type.value_bytes - 1 - type.exponent_bits;

template <const ValueType& type>
NARROWCAST_INLINE uint16_t exponent_at(const uint8_t* values, size_t index) {
  return static_cast<uint16_t>(load_elem<type>(values, index) >> exponent_shift<type> & exponent_mask<type>);
}

// The encoder's rule in docs/format/rows.md. `count`: values in lanes, a multiple of 32, not 0.
template <const ValueType& type>
NARROWCAST_INLINE Placement place_window(const WindowLayout& layout, const uint8_t* values, size_t in_lanes) {
  const size_t count = std::min(in_lanes, max_row_samples);
  alignas(64) uint16_t sample[max_row_samples];
  if (count == in_lanes) {
    for (size_t i = 0; i < count; ++i) sample[i] = exponent_at<type>(values, i);
  } else {
    for (size_t i = 0; i < max_row_samples; ++i) sample[i] = exponent_at<type>(values, i * in_lanes / max_row_samples);
  }

  const size_t columns = count / sample_quarters;
  uint16_t anchor = 0;
  for (size_t column = 0; column < columns; ++column) {
    uint16_t least = sample[column];
    for (size_t quarter = 1; quarter < sample_quarters; ++quarter)
      least = std::min(least, sample[quarter * columns + column]);
    anchor = std::max(anchor, least);
  }
  const auto lowest = static_cast<uint16_t>(std::max(anchor - bins_below_anchor, 0));

  uint32_t zeros = 0;
  for (size_t i = 0; i < count; ++i) zeros += sample[i] == 0 ? 1 : 0;
  // Exponents outside the bins are counted in an extra bin, which is never read.
  for (size_t i = 0; i < count; ++i) sample[i] = std::min<uint16_t>(static_cast<uint16_t>(sample[i] - lowest), bins);
  // Several histograms, so that increments of the same bin do not wait for each other.
  uint32_t histogram[4][bins + 1] = {};
  for (size_t i = 0; i < count; i += 4)
    for (size_t part = 0; part < 4; ++part) ++histogram[part][sample[i + part]];

  // below[lead + b]: samples in the bins before b. Windows may extend past the last bin.
  constexpr int lead = below_tokens, reach = 31 + above_tokens;
  int below[lead + bins + reach + 1];
  for (int i = 0; i < lead; ++i) below[i] = 0;
  uint32_t total = 0;
  for (int bin = 0; bin < bins; ++bin) {
    below[lead + bin] = static_cast<int>(total);
    for (const auto& part : histogram) total += part[bin];
  }
  for (int bin = bins; bin <= bins + reach; ++bin) below[lead + bin] = static_cast<int>(total);

  // Constant terms are left out of the costs.
  const int far_bits = 8 * layout.far_bytes();
  int zero_cost[bins];
  for (int bin = 0; bin < bins; ++bin)
    zero_cost[bin] = lowest == 0 && bin <= below_tokens ? 0 : far_bits * static_cast<int>(zeros);
  Placement best{1, 0};
  int best_cost = std::numeric_limits<int>::max();
  for (int width = layout.max_width(); width >= 1; --width) {
    const int span = (1 << width) - 1;
    // The cost in the high part, the bin in the low part: among equals the first bin wins.
    int best_key = std::numeric_limits<int>::max();
    for (int bin = 0; bin < bins; ++bin) {
      const int covered = below[lead + bin + span] - below[lead + bin];
      const int near = below[lead + bin + span + above_tokens] - below[lead + bin - below_tokens];
      // At least -256 x (4 + 16), which the offset makes positive.
      const int cost = 8192 - token_bits * covered - far_bits * near - zero_cost[bin];
      best_key = std::min(best_key, cost * bins + bin);
    }
    const int cost = best_key / bins + width * static_cast<int>(count);
    if (cost < best_cost) {
      best_cost = cost;
      best = {width, std::min(lowest + best_key % bins, (1 << type.exponent_bits) - (1 << width))};
    }
  }
  return best;
}

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

// The arrays of one group, and the escapes of the whole row.
template <const ValueType& type>
struct alignas(64) Scratch {
  Exponent<type> exponents[group_elems];
  uint8_t codes[group_elems];
  uint8_t rest_bits[group_elems];
  uint32_t escapes[lanes];
};
struct Tokens {
  uint8_t token[max_row_escapes + 1 + group_elems];
  uint16_t far[max_row_escapes + 1 + group_elems];
};

// Whether the rest is a byte, or some packed bits, or both; and how the value without tail is split.
template <const ValueType& type, bool trimmed>
struct Split {
  // float16 without its low 3 bits is the only type whose head changes.
  static constexpr int head_shift = type.value_bytes == 2 && trimmed ? 3 : 8 * type.tail_bytes;
  static constexpr int rest_bits = type.value_bytes == 2 && trimmed ? 0 : type.rest_bits;
  static constexpr int head_mantissa = exponent_shift<type> - head_shift;
  static constexpr uint32_t mantissa = (1u << head_mantissa) - 1;
};

template <const ValueType& type, bool trimmed>
NARROWCAST_INLINE void split_group(const uint8_t* values, int count, uint8_t* __restrict rest_bytes,
                                   Scratch<type>& __restrict scratch) {
  using Parts = Split<type, trimmed>;
  for (int i = 0; i < count; ++i) {
    const auto head = static_cast<Head<type>>(load_elem<type>(values, static_cast<size_t>(i)) >> Parts::head_shift);
    scratch.exponents[i] = static_cast<Exponent<type>>(head >> Parts::head_mantissa & exponent_mask<type>);
    const auto rest =
        static_cast<Head<type>>((head >> type.exponent_bits & (Parts::mantissa + 1)) | (head & Parts::mantissa));
    if constexpr (type.rest_bytes != 0) rest_bytes[i] = static_cast<uint8_t>(rest);
    if constexpr (Parts::rest_bits != 0) scratch.rest_bits[i] = static_cast<uint8_t>(rest >> 8 * type.rest_bytes);
  }
}

// Writes up to 8 bytes more than the tails. The sections after them are longer and are written later.
template <const ValueType& type>
NARROWCAST_INLINE void split_tails(const uint8_t* values, int count, int tail_bytes, uint8_t* __restrict tails) {
  if constexpr (type.value_bytes == 4) {
    if (tail_bytes == 2)
      for (int i = 0; i < count; ++i)
        reinterpret_cast<Unaligned16*>(tails)[i] =
            static_cast<uint16_t>(load_elem<type>(values, static_cast<size_t>(i)));
    else if (tail_bytes == 1)
      for (int i = 0; i < count; ++i)
        tails[i] = static_cast<uint8_t>(load_elem<type>(values, static_cast<size_t>(i)) >> 8);
  } else if constexpr (type.value_bytes == 8) {
    const int low_bits = 48 - 8 * tail_bytes;
    if (tail_bytes != 0)
      for (int i = 0; i < count; ++i)
        *reinterpret_cast<Unaligned64*>(tails + i * tail_bytes) =
            load_elem<type>(values, static_cast<size_t>(i)) >> low_bits;
  }
}

template <const ValueType& type, bool trimmed>
NARROWCAST_INLINE void join_group(const uint8_t* group, int count, int tail_bytes, uint64_t low,
                                  const uint8_t* __restrict rest_bytes, const Scratch<type>& __restrict scratch,
                                  uint8_t* __restrict values) {
  using Parts = Split<type, trimmed>;
  Head<type> heads[group_elems];
  for (int i = 0; i < count; ++i) {
    Head<type> rest = 0;
    if constexpr (type.rest_bytes != 0) rest = rest_bytes[i];
    if constexpr (Parts::rest_bits != 0)
      rest = static_cast<Head<type>>(rest | scratch.rest_bits[i] << 8 * type.rest_bytes);
    heads[i] = static_cast<Head<type>>((rest & (Parts::mantissa + 1)) << type.exponent_bits |
                                       scratch.exponents[i] << Parts::head_mantissa | (rest & Parts::mantissa));
  }
  if constexpr (type.value_bytes == 1) {
    std::memcpy(values, heads, static_cast<size_t>(count));
  } else if constexpr (type.value_bytes == 2) {
    const auto low16 = static_cast<uint16_t>(low);
    constexpr int shift = trimmed ? 3 : 0;
    for (int i = 0; i < count; ++i)
      reinterpret_cast<Unaligned16*>(values)[i] = static_cast<uint16_t>(heads[i] << shift | low16);
  } else if constexpr (type.value_bytes == 4) {
    const auto low32 = static_cast<uint32_t>(low);
    Unaligned32* const to = reinterpret_cast<Unaligned32*>(values);
    if (tail_bytes == 2)
      for (int i = 0; i < count; ++i)
        to[i] = static_cast<uint32_t>(heads[i]) << 16 | reinterpret_cast<const Unaligned16*>(group)[i];
    else if (tail_bytes == 1)
      for (int i = 0; i < count; ++i)
        to[i] = static_cast<uint32_t>(heads[i]) << 16 | static_cast<uint32_t>(group[i]) << 8 | low32;
    else
      for (int i = 0; i < count; ++i) to[i] = static_cast<uint32_t>(heads[i]) << 16 | low32;
  } else {
    Unaligned64* const to = reinterpret_cast<Unaligned64*>(values);
    const int low_bits = 48 - 8 * tail_bytes;
    if (tail_bytes == 0)
      for (int i = 0; i < count; ++i) to[i] = static_cast<uint64_t>(heads[i]) << 48 | low;
    else
      for (int i = 0; i < count; ++i) {
        // Reads up to 8 bytes more than the tails; the sections after them are longer.
        const uint64_t tail = *reinterpret_cast<const Unaligned64*>(group + i * tail_bytes) << (64 - 8 * tail_bytes) >>
                              (64 - 8 * tail_bytes);
        to[i] = static_cast<uint64_t>(heads[i]) << 48 | tail << low_bits | low;
      }
  }
}

template <const ValueType& type>
NARROWCAST_INLINE void pack_fields(int width, const uint8_t* fields, uint8_t* section, uint32_t* escapes,
                                   int lane_count) {
  switch (width) {
    case 1: return pack_group<type, 1>(fields, section, escapes, lane_count);
    case 2: return pack_group<type, 2>(fields, section, escapes, lane_count);
    case 3: return pack_group<type, 3>(fields, section, escapes, lane_count);
    case 4: return pack_group<type, 4>(fields, section, escapes, lane_count);
    default: return pack_group<type, 5>(fields, section, escapes, lane_count);
  }
}

template <const ValueType& type>
NARROWCAST_INLINE void unpack_fields(int width, const uint8_t* section, int base, uint8_t* fields, uint32_t* escapes,
                                     int lane_count) {
  switch (width) {
    case 1: return unpack_group<type, 1>(section, base, fields, escapes, lane_count);
    case 2: return unpack_group<type, 2>(section, base, fields, escapes, lane_count);
    case 3: return unpack_group<type, 3>(section, base, fields, escapes, lane_count);
    case 4: return unpack_group<type, 4>(section, base, fields, escapes, lane_count);
    default: return unpack_group<type, 5>(section, base, fields, escapes, lane_count);
  }
}

// Where the sections of a group begin.
struct Sections {
  size_t rest_bytes, rest_bits, codes, end;
};
NARROWCAST_INLINE Sections sections_of(const WindowLayout& layout, size_t count, int width) {
  Sections sections;
  sections.rest_bytes = count * static_cast<size_t>(layout.tail_bytes);
  sections.rest_bits = sections.rest_bytes + count * static_cast<size_t>(layout.rest_bytes);
  sections.codes = sections.rest_bits + count / 8 * static_cast<size_t>(layout.rest_bits);
  sections.end = sections.codes + count / 8 * static_cast<size_t>(width);
  return sections;
}

// Encodes `elems` values that follow the trim. `body` has `room` bytes. Returns the bytes of the body, or `room` if it
// does not fit.
template <const ValueType& type, bool trimmed>
NARROWCAST_INLINE size_t encode_values(const WindowLayout& layout, const uint8_t* values, size_t elems, uint8_t* body,
                                       size_t room, uint32_t* header) {
  const size_t in_lanes = elems / lane_elems * lane_elems;
  Placement window{layout.max_width(), 0};
  if (in_lanes == 0)
    window.width = layout.max_width();
  else
    window = place_window<type>(layout, values, in_lanes);
  const size_t fixed = layout.fixed_bytes(elems, window.width);
  if (fixed >= room) return room;

  alignas(64) uint8_t token_of[1 << type.exponent_bits];
  std::memset(token_of, far_token, sizeof token_of);
  for (int i = 0; i < below_tokens; ++i)
    if (window.base - below_tokens + i >= 0) token_of[window.base - below_tokens + i] = static_cast<uint8_t>(i);
  for (int i = 0; i < above_tokens; ++i) {
    const int exponent = window.base + (1 << window.width) - 1 + i;
    if (exponent < (1 << type.exponent_bits)) token_of[exponent] = static_cast<uint8_t>(below_tokens + i);
  }
  token_of[0] = zero_token;

  Scratch<type> scratch;
  Tokens tokens;
  size_t escapes = 0, far = 0;
  uint8_t* group = body;
  const auto base = static_cast<Exponent<type>>(window.base);
  const auto last = static_cast<Exponent<type>>((1 << window.width) - 1);
  for (size_t first = 0; first < in_lanes; first += group_elems) {
    const int count = static_cast<int>(std::min<size_t>(in_lanes - first, group_elems));
    const int lane_count = count / static_cast<int>(lane_elems);
    const uint8_t* from = values + first * static_cast<size_t>(type.value_bytes);
    const Sections at = sections_of(layout, static_cast<size_t>(count), window.width);
    split_tails<type>(from, count, layout.tail_bytes, group);
    split_group<type, trimmed>(from, count, group + at.rest_bytes, scratch);
    if constexpr (Split<type, trimmed>::rest_bits != 0)
      pack_group<type, Split<type, trimmed>::rest_bits>(scratch.rest_bits, group + at.rest_bits, nullptr, lane_count);
    for (int i = 0; i < count; ++i)
      scratch.codes[i] = static_cast<uint8_t>(std::min(static_cast<Exponent<type>>(scratch.exponents[i] - base), last));
    pack_fields<type>(window.width, scratch.codes, group + at.codes, scratch.escapes, lane_count);

    for (int lane = 0; lane < lane_count; ++lane)
      for (uint32_t left = scratch.escapes[lane]; left != 0; left &= left - 1) {
        const auto& place = place_of_bit<type>[static_cast<size_t>(__builtin_ctz(left))];
        const Exponent<type> exponent =
            scratch.exponents[place[0] * lane_count + place[1] + lane * type.vector_elems()];
        const uint8_t token = token_of[exponent];
        tokens.token[escapes++] = token;
        tokens.far[far] = exponent;
        far += token == far_token ? 1 : 0;
      }
    if (escapes > max_row_escapes) return room;
    group += at.end;
  }
  const size_t bytes = layout.body_bytes(elems, window.width, escapes, far);
  if (bytes >= room) return room;

  const auto coded_bytes = static_cast<size_t>(layout.coded_bytes());
  for (size_t i = in_lanes; i < elems; ++i, group += coded_bytes) {
    const uint64_t coded = uint64_t{load_elem<type>(values, i)} >> layout.low_bits;
    std::memcpy(group, &coded, coded_bytes);
  }
  tokens.token[escapes] = 0;  // the other half of the last byte when the count is odd
  for (size_t i = 0; i < escapes; i += 2) *group++ = static_cast<uint8_t>(tokens.token[i] | tokens.token[i + 1] << 4);
  for (size_t i = 0; i < far; ++i, group += layout.far_bytes())
    std::memcpy(group, &tokens.far[i], static_cast<size_t>(layout.far_bytes()));
  std::memset(group, 0, bytes - static_cast<size_t>(group - body));
  *header = static_cast<uint32_t>(window.width) << row_width_shift |
            static_cast<uint32_t>(window.base) << row_base_shift | static_cast<uint32_t>(escapes) << row_escapes_shift;
  return bytes;
}

template <const ValueType& type, bool trimmed>
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
      unpack_fields<type>(width, group + at.codes, base, scratch.exponents, scratch.escapes, lane_count);
    } else {
      unpack_fields<type>(width, group + at.codes, 0, scratch.codes, scratch.escapes, lane_count);
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
      unpack_group<type, Split<type, trimmed>::rest_bits>(group + at.rest_bits, 0, scratch.rest_bits, nullptr,
                                                          lane_count);
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

template <const ValueType& type>
NARROWCAST_INLINE size_t encode_row(const Model& model, const uint8_t* values, size_t elems, uint8_t* body, size_t room,
                                    uint32_t* header) {
  const WindowLayout layout = window_layout(model.shape.dtype, model.trim.low_bits);
  if (model.trim.low_bits != 0) {
    if (!follow_trim<type>(values, elems, model.trim)) return room;
    return encode_values<type, true>(layout, values, elems, body, room, header);
  }
  return encode_values<type, false>(layout, values, elems, body, room, header);
}

template <const ValueType& type>
NARROWCAST_INLINE bool decode_row(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes,
                                  size_t elems, uint8_t* values) {
  const WindowLayout layout = window_layout(model.shape.dtype, model.trim.low_bits);
  if (model.trim.low_bits != 0)
    return decode_values<type, true>(layout, model.trim.low, header, body, body_bytes, elems, values);
  return decode_values<type, false>(layout, 0, header, body, body_bytes, elems, values);
}

struct ValuesCoder {
  size_t (*encode)(const Model&, const uint8_t* values, size_t elems, uint8_t* body, size_t room, uint32_t* header);
  bool (*decode)(const Model&, uint32_t header, const uint8_t* body, size_t body_bytes, size_t elems, uint8_t* values);
};

#define STORE_WINDOW_PATH(path, ...)                                                                                 \
  namespace path {                                                                                                   \
  template <const ValueType& type>                                                                                   \
  __VA_ARGS__ size_t encode_one(const Model& model, const uint8_t* values, size_t elems, uint8_t* body, size_t room, \
                                uint32_t* header) {                                                                  \
    return encode_row<type>(model, values, elems, body, room, header);                                               \
  }                                                                                                                  \
  template <const ValueType& type>                                                                                   \
  __VA_ARGS__ bool decode_one(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes,           \
                              size_t elems, uint8_t* values) {                                                       \
    return decode_row<type>(model, header, body, body_bytes, elems, values);                                         \
  }                                                                                                                  \
  ValuesCoder coder_of(ncast_dtype dtype) {                                                                          \
    switch (dtype) {                                                                                                 \
      case NCAST_BFLOAT16: return {encode_one<bfloat16>, decode_one<bfloat16>};                                      \
      case NCAST_FLOAT16: return {encode_one<float16>, decode_one<float16>};                                         \
      case NCAST_FLOAT32: return {encode_one<float32>, decode_one<float32>};                                         \
      case NCAST_FLOAT64: return {encode_one<float64>, decode_one<float64>};                                         \
      case NCAST_FLOAT8_E4M3: return {encode_one<float8_e4m3>, decode_one<float8_e4m3>};                             \
      default: return {encode_one<float8_e5m2>, decode_one<float8_e5m2>};                                            \
    }                                                                                                                \
  }                                                                                                                  \
  }

STORE_WINDOW_PATH(baseline, )
#if defined(__x86_64__)
STORE_WINDOW_PATH(avx2, __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt"))))
#endif
#undef STORE_WINDOW_PATH

template <InstructionSet set>
ValuesCoder coder_for(ncast_dtype dtype) {
#if defined(__x86_64__)
  if constexpr (set == InstructionSet::avx2) return avx2::coder_of(dtype);
#endif
  return baseline::coder_of(dtype);
}

template <InstructionSet set>
size_t encode(const Model& model, const uint8_t* row, uint8_t* payload) {
  const ValuesCoder coder = coder_for<set>(model.shape.dtype);
  const size_t room = aligned4(model.shape.row_bytes());
  uint32_t header = 0;
  size_t bytes = 0;
  if (model.has_zeros) {
    alignas(64) uint8_t present[max_row_bytes + slack];
    alignas(64) uint8_t map[max_map_bytes];
    const size_t map_bytes = aligned4((model.shape.elems + 7) / 8);
    const size_t elems = split_zeros(model.elem_bytes(), row, model.shape.elems, map, present);
    if (map_bytes >= room) return 0;
    std::memcpy(payload + header_bytes, map, map_bytes);
    bytes =
        map_bytes + coder.encode(model, present, elems, payload + header_bytes + map_bytes, room - map_bytes, &header);
  } else {
    bytes = coder.encode(model, row, model.shape.elems, payload + header_bytes, room, &header);
  }
  if (bytes >= room) return 0;
  std::memcpy(payload, &header, header_bytes);
  return header_bytes + bytes;
}

template <InstructionSet set>
bool decode(const Model& model, uint32_t header, const uint8_t* body, size_t body_bytes, uint8_t* row) {
  const ValuesCoder coder = coder_for<set>(model.shape.dtype);
  if (!model.has_zeros) return coder.decode(model, header, body, body_bytes, model.shape.elems, row);
  const size_t map_bytes = aligned4((model.shape.elems + 7) / 8);
  if (body_bytes < map_bytes) return false;
  const size_t elems = count_present(body, model.shape.elems);
  alignas(64) uint8_t present[max_row_bytes + slack];
  if (!coder.decode(model, header, body + map_bytes, body_bytes - map_bytes, elems, present)) return false;
  // join_zeros() reads one element more than there are, and masks it.
  std::memset(present + elems * static_cast<size_t>(model.elem_bytes()), 0, sizeof(uint64_t));
  join_zeros(model.elem_bytes(), body, present, model.shape.elems, row);
  return true;
}

}  // namespace

RowCoder fast_window(InstructionSet set) {
  if (set == InstructionSet::avx2) return {encode<InstructionSet::avx2>, decode<InstructionSet::avx2>};
  return {encode<InstructionSet::baseline>, decode<InstructionSet::baseline>};
}

}  // namespace narrowcast::store
