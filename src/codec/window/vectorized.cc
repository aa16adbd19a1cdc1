// The codec `window` with vector instructions. Produces the same bytes as reference.cc. The loops are in
// vectorized_rows.h and vectorized_escapes.h; this file instantiates them for each value type and instruction set.
#include "codec/window/vectorized.h"

#include <cstring>

#include "codec/window/vectorized_escapes.h"
#include "codec/window/vectorized_rows.h"

namespace narrowcast::codec::window {
namespace {

using namespace rows;

template <const ValueType& type, const ValueType& stored>
NARROWCAST_INLINE void encode_rests(const uint8_t* values, uint8_t* payload,
                                    PerValue<type, Exponent<type>>& exponents) {
  PerValue<type> rest_bits;
  split_values<type, stored>(values, payload, exponents, rest_bits);
  if constexpr (stored.rest_bits != 0)
    pack<type, stored.rest_bits>(rest_bits, payload + stored.rest_bit_offset(), nullptr);
}

template <const ValueType& type, const ValueType& stored>
NARROWCAST_INLINE void decode_rests(const uint8_t* payload, const PerValue<type, Exponent<type>>& exponents,
                                    uint8_t* values) {
  PerValue<type> rest_bits;
  if constexpr (stored.rest_bits != 0)
    unpack<type, stored.rest_bits>(payload + stored.rest_bit_offset(), 0, rest_bits, nullptr);
  join_values<type, stored>(payload, exponents, rest_bits, values);
}

template <const ValueType& type>
NARROWCAST_INLINE void encode_codes(const Placement& window, const PerValue<type, Exponent<type>>& exponents,
                                    uint8_t* section, EscapeBits<type>& escapes) {
  // For exponents below the window the distance wraps around and becomes at least `last`, because base + 2^width never
  // exceeds the range of exponents.
  PerValue<type> codes;
  const auto base = static_cast<Exponent<type>>(window.base);
  const auto last = static_cast<Exponent<type>>((1 << window.width) - 1);
  for (int i = 0; i < type.block_elems(); ++i)
    codes.of[i] = static_cast<uint8_t>(std::min(static_cast<Exponent<type>>(exponents.of[i] - base), last));
  switch (window.width) {
    case 1: return pack<type, 1>(codes, section, escapes);
    case 2: return pack<type, 2>(codes, section, escapes);
    case 3: return pack<type, 3>(codes, section, escapes);
    case 4: return pack<type, 4>(codes, section, escapes);
    default: return pack<type, 5>(codes, section, escapes);
  }
}

template <const ValueType& type>
NARROWCAST_INLINE void unpack_codes(int width, const uint8_t* section, int base, PerValue<type>& fields,
                                    EscapeBits<type>& escapes) {
  switch (width) {
    case 1: return unpack<type, 1>(section, base, fields, escapes);
    case 2: return unpack<type, 2>(section, base, fields, escapes);
    case 3: return unpack<type, 3>(section, base, fields, escapes);
    case 4: return unpack<type, 4>(section, base, fields, escapes);
    default: return unpack<type, 5>(section, base, fields, escapes);
  }
}

template <const ValueType& type>
NARROWCAST_INLINE void decode_codes(const Placement& window, const uint8_t* section,
                                    PerValue<type, Exponent<type>>& exponents, EscapeBits<type>& escapes) {
  if constexpr (sizeof(Exponent<type>) == 1) {
    unpack_codes<type>(window.width, section, window.base, exponents, escapes);
  } else {
    PerValue<type> codes;
    unpack_codes<type>(window.width, section, 0, codes, escapes);
    for (int i = 0; i < type.block_elems(); ++i)
      exponents.of[i] = static_cast<Exponent<type>>(codes.of[i] + window.base);
  }
}

template <const ValueType& type>
NARROWCAST_INLINE size_t store_raw(const uint8_t* values, uint8_t* payload) {
  std::memcpy(payload, values, type.block_bytes());
  return type.block_bytes();
}

// Calls the specialization for the type as it is stored.
#define NARROWCAST_AS_STORED(function, stored, ...)                        \
  do {                                                                     \
    const int kept = (stored).kept_bits();                                 \
    if constexpr (type.can_keep(24))                                       \
      if (kept == 24) function<type, trimmed_type<type, 24>>(__VA_ARGS__); \
    if constexpr (type.can_keep(11))                                       \
      if (kept == 11) function<type, trimmed_type<type, 11>>(__VA_ARGS__); \
    if constexpr (type.can_keep(8))                                        \
      if (kept == 8) function<type, trimmed_type<type, 8>>(__VA_ARGS__);   \
    if (kept == type.kept_bits()) function<type, type>(__VA_ARGS__);       \
  } while (false)

template <const ValueType& type>
NARROWCAST_INLINE size_t encode_block(const uint8_t* values, uint8_t* payload) {
  const ValueType stored = stored_type<type>(values);
  const Placement window = place_window<type>(values, stored.trimmed_bits());
  if (window.width == 0) return store_raw<type>(values, payload);

  PerValue<type, Exponent<type>> exponents;
  EscapeBits<type> escapes;
  NARROWCAST_AS_STORED(encode_rests, stored, values, payload, exponents);
  encode_codes<type>(window, exponents, payload + stored.code_offset(), escapes);

  EscapeList<type> list;
  list_escapes<type>(escapes, list);
  if (stored.payload_bytes(window.width, list.count, 0) >= type.block_bytes()) return store_raw<type>(values, payload);
  Tokens<type> tokens;
  make_tokens<type>(window, exponents, list, tokens);
  const int bytes = stored.payload_bytes(window.width, list.count, tokens.far_count);
  if (bytes >= type.block_bytes()) return store_raw<type>(values, payload);
  store_tokens<type>(stored, window, list, tokens, payload, bytes);
  return static_cast<size_t>(bytes);
}

template <const ValueType& type>
NARROWCAST_INLINE bool decode_block(const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
  if (payload_bytes == static_cast<size_t>(type.block_bytes())) {
    std::memcpy(values, payload, payload_bytes);
    return true;
  }
  PayloadHeader header;
  if (!read_payload_header(type, payload, payload_bytes, &header)) return false;
  const ValueType stored = header.stored;
  const Placement window{header.width, header.base};

  PerValue<type, Exponent<type>> exponents;
  EscapeBits<type> escapes;
  decode_codes<type>(window, payload + stored.code_offset(), exponents, escapes);
  EscapeList<type> list;
  list_escapes<type>(escapes, list);
  if (list.count != header.escapes) return false;
  Tokens<type> tokens;
  load_tokens<type>(payload + stored.escape_offset(header.width), header.escapes, tokens);
  if (payload_bytes != static_cast<size_t>(stored.payload_bytes(header.width, header.escapes, tokens.far_count)))
    return false;
  apply_tokens<type>(window, list, tokens, payload + payload_bytes, exponents);
  NARROWCAST_AS_STORED(decode_rests, stored, payload, exponents, values);
  return true;
}
#undef NARROWCAST_AS_STORED

// Instantiates the templates above for one instruction set: they are inlined into functions compiled for it.
#define NARROWCAST_VECTOR_PATH(path, ...)                                                      \
  namespace path {                                                                             \
  template <const ValueType& type>                                                             \
  __VA_ARGS__ size_t encode_one(const uint8_t* values, uint8_t* payload) {                     \
    return encode_block<type>(values, payload);                                                \
  }                                                                                            \
  template <const ValueType& type>                                                             \
  __VA_ARGS__ bool decode_one(const uint8_t* payload, size_t payload_bytes, uint8_t* values) { \
    return decode_block<type>(payload, payload_bytes, values);                                 \
  }                                                                                            \
  size_t encode(const ValueType& type, const uint8_t* values, uint8_t* payload) {              \
    switch (type.value_bytes << 4 | type.exponent_bits) {                                      \
      case 0x28: return encode_one<bfloat16>(values, payload);                                 \
      case 0x25: return encode_one<float16>(values, payload);                                  \
      case 0x48: return encode_one<float32>(values, payload);                                  \
      case 0x8b: return encode_one<float64>(values, payload);                                  \
      case 0x14: return encode_one<float8_e4m3>(values, payload);                              \
      default: return encode_one<float8_e5m2>(values, payload);                                \
    }                                                                                          \
  }                                                                                            \
  bool decode(const ValueType& type, const uint8_t* payload, size_t bytes, uint8_t* values) {  \
    switch (type.value_bytes << 4 | type.exponent_bits) {                                      \
      case 0x28: return decode_one<bfloat16>(payload, bytes, values);                          \
      case 0x25: return decode_one<float16>(payload, bytes, values);                           \
      case 0x48: return decode_one<float32>(payload, bytes, values);                           \
      case 0x8b: return decode_one<float64>(payload, bytes, values);                           \
      case 0x14: return decode_one<float8_e4m3>(payload, bytes, values);                       \
      default: return decode_one<float8_e5m2>(payload, bytes, values);                         \
    }                                                                                          \
  }                                                                                            \
  }

NARROWCAST_VECTOR_PATH(baseline, )
#if defined(__x86_64__)
NARROWCAST_VECTOR_PATH(avx2, __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt"))))
NARROWCAST_VECTOR_PATH(
    avx512, __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi"))))
#endif
#undef NARROWCAST_VECTOR_PATH

constexpr VectorPath paths[] = {
    {"baseline", {baseline::encode, baseline::decode}},
#if defined(__x86_64__)
    {"avx2", {avx2::encode, avx2::decode}},
    {"avx512", {avx512::encode, avx512::decode}},
#endif
};

size_t supported_paths() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2")) return 1;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vbmi"))
    return 2;
  return 3;
#else
  return 1;
#endif
}

const BlockCoder& best() {
  static const BlockCoder& coder = vector_paths().back().coder;
  return coder;
}

}  // namespace

std::span<const VectorPath> vector_paths() { return {paths, supported_paths()}; }

const BlockCoder vectorized{
    [](const ValueType& type, const uint8_t* values, uint8_t* payload) { return best().encode(type, values, payload); },
    [](const ValueType& type, const uint8_t* payload, size_t payload_bytes, uint8_t* values) {
      return best().decode(type, payload, payload_bytes, values);
    }};

}  // namespace narrowcast::codec::window
