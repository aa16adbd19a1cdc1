// Groups of a row for the vectorized coder `window`: values to the sections of a group, and back.
#pragma once

#include "store/rows/window_elems.h"
#include "store/rows/window_layout.h"

namespace narrowcast::store::window {

// The parts of the values of one group that are not bytes of its sections, and its escapes.
template <const ValueType& type>
struct alignas(64) Scratch {
  Exponent<type> exponents[group_elems];
  uint8_t codes[group_elems];
  uint8_t rest_bits[group_elems];
  uint8_t tokens[group_elems];
  uint32_t escapes[lanes];
  uint32_t ordered[lanes][4];
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

// Groups are packed alike whatever else is in a value, so types of the same size share these functions of their path.
template <const ValueType& type>
constexpr const ValueType& same_size = type.value_bytes == 1   ? float8_e4m3
                                       : type.value_bytes == 2 ? bfloat16
                                       : type.value_bytes == 4 ? float32
                                                               : float64;

template <typename Path, const ValueType& type>
NARROWCAST_INLINE void pack_fields(int width, const uint8_t* fields, uint8_t* section, uint32_t* escapes,
                                   int lane_count) {
  switch (width) {
    case 1: return Path::template pack<same_size<type>, 1>(fields, section, escapes, lane_count);
    case 2: return Path::template pack<same_size<type>, 2>(fields, section, escapes, lane_count);
    case 3: return Path::template pack<same_size<type>, 3>(fields, section, escapes, lane_count);
    case 4: return Path::template pack<same_size<type>, 4>(fields, section, escapes, lane_count);
    default: return Path::template pack<same_size<type>, 5>(fields, section, escapes, lane_count);
  }
}

template <typename Path, const ValueType& type>
NARROWCAST_INLINE void unpack_fields(int width, const uint8_t* section, int base, uint8_t* fields, uint32_t* escapes,
                                     int lane_count) {
  switch (width) {
    case 1: return Path::template unpack<same_size<type>, 1>(section, base, fields, escapes, lane_count);
    case 2: return Path::template unpack<same_size<type>, 2>(section, base, fields, escapes, lane_count);
    case 3: return Path::template unpack<same_size<type>, 3>(section, base, fields, escapes, lane_count);
    case 4: return Path::template unpack<same_size<type>, 4>(section, base, fields, escapes, lane_count);
    default: return Path::template unpack<same_size<type>, 5>(section, base, fields, escapes, lane_count);
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

}  // namespace narrowcast::store::window
