// The coder `window` with vector instructions: the bytes of window_reference.cc. It shares its loops over groups with
// the codec of blocks (codec/window/vectorized_rows.h). Everything is inlined into the functions that select the
// instruction set.
#include <algorithm>
#include <array>
#include <cstring>

#include "store/rows/fast.h"
#include "store/rows/window_groups.h"
#include "store/rows/window_placement.h"
#include "store/rows/zero_map.h"

namespace narrowcast::store {
namespace {

using namespace window;

constexpr size_t lane_elems = 32;
constexpr size_t slack = 64;  // buffers are read and written ahead

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

// The escapes of a row.
struct Tokens {
  uint8_t token[max_row_escapes + 1 + group_elems];
  uint16_t far[max_row_escapes + 1 + group_elems];
};

// Encodes `elems` values that follow the trim. `body` has `room` bytes. Returns the bytes of the body, or `room` if it
// does not fit.
template <const ValueType& type, bool trimmed>
NARROWCAST_INLINE size_t encode_values(const WindowLayout& layout, const uint8_t* values, size_t elems, uint8_t* body,
                                       size_t room, uint32_t* header) {
  const size_t in_lanes = elems / lane_elems * lane_elems;
  const Placement window =
      in_lanes == 0 ? Placement{layout.max_width(), 0} : place_window<type>(layout, values, in_lanes);
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
  for (size_t i = 0; i < far; ++i, group += sizeof(Exponent<type>))
    std::memcpy(group, &tokens.far[i], sizeof(Exponent<type>));
  while (group != body + bytes) *group++ = 0;
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
