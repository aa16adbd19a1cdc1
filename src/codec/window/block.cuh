// A block of `window` on the GPU: one warp encodes or decodes it between two buffers in shared memory
// (docs/format/window.md). It allocates nothing and synchronizes only the warp, so any kernel can use it. reference.cc
// produces the same bytes.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "escapes.cuh"
#include "format.h"
#include "packing.cuh"
#include "parts.cuh"
#include "placement.cuh"

namespace narrowcast::codec::window {

// `unrolled` repeats the code for every group, which is faster in a kernel that does nothing else. Without it the code
// exists once, which is faster next to other code that competes for the instruction cache.
template <ValueType Type, bool unrolled = true>
class Block {
  static constexpr int words = group_words;
  static constexpr int groups = Type.groups();
  static constexpr bool has_trimmed_types = Type.least_trim_mask() != 0;

 public:
  static constexpr uint32_t values_bytes = Type.block_bytes();
  // Scratch of a warp in shared memory; 4-byte aligned.
  union Scratch {
    Histogram histogram;
    EscapeList escapes;
  };

  // Encodes a block. values, payload: shared memory, 16-byte aligned, values_bytes long; the values must be visible to
  // the whole warp. Returns the payload's size in bytes to all lanes, a multiple of 16. A size of values_bytes means
  // that the block is stored raw: its payload is `values`, and the content of `payload` is undefined.
  __device__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(values);
    auto* out = static_cast<char*>(payload);
    const Window window = place_window<Type>(in, scratch.histogram, lane);
    if (window.width == 0) return values_bytes;

    uint32_t escaped[groups];
    code_groups(escaped, [&](int group) { return encode_group(in, out, window, group, lane); });
    const Escapes<Type> escapes(escaped);
    if (payload_bytes(window, escapes.count(), 0) >= Type.block_bytes()) return values_bytes;
    return encode_escapes(in, out, window, escapes, scratch.escapes, lane);
  }

  // Decodes a block. payload: 16-byte aligned, payload_bytes long (at most values_bytes), with any content. values:
  // shared memory, 16-byte aligned; the warp must synchronize before it reads them. Returns the same result to all
  // lanes: false if the payload does not follow the format (the values are then unspecified). Do not call it for a raw
  // payload (payload_bytes == values_bytes), which is the values themselves.
  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(payload);
    auto* out = static_cast<char*>(values);
    // The shuffle tells the compiler that the header is the same in all lanes, so that branches on it are uniform.
    const uint32_t header = __shfl_sync(device::all_lanes, load<uint32_t>(in + payload_bytes - 4), 0);
    Window window{header & width_mask, header >> base_shift & base_mask, 0};
    uint32_t escape_count = header >> escapes_shift;  // too large if the type cannot be trimmed and `kept` is not 0
    if constexpr (has_trimmed_types) {
      window.kept = header >> kept_shift;
      escape_count &= escapes_mask;
      if (window.kept != 0 && !Type.can_keep(window.kept)) return false;
    }
    if (window.width < 1 || window.width > Type.max_width() || escape_count > Type.block_elems() ||
        window.base > (1u << Type.exponent_bits) - (1u << window.width) ||
        Block::payload_bytes(window, escape_count, 0) > payload_bytes)
      return false;

    uint32_t escaped[groups];
    code_groups(escaped, [&](int group) { return decode_group(in, out, window, group, lane); });
    const Escapes<Type> escapes(escaped);
    if (escapes.count() != escape_count) return false;
    return decode_escapes(in, payload_bytes, out, window, escapes, scratch.escapes, lane);
  }

 private:
  template <typename T>
  __device__ static T load(const char* from) {
    return *reinterpret_cast<const T*>(from);
  }
  template <typename T>
  __device__ static void store(char* to, const T& value) {
    *reinterpret_cast<T*>(to) = value;
  }

  // As the members of ValueType, for the type as it is stored. The sections of a trimmed type are shorter by a multiple
  // of 16 bytes.
  __device__ static uint32_t trimmed_bytes(const Window& window) {
    uint32_t bytes = 0;
    as_stored<Type>(window.kept, [&]<ValueType Stored>() {
      static_assert((Type.code_offset() - Stored.code_offset()) % format::alignment == 0);
      bytes = Type.code_offset() - Stored.code_offset();
    });
    return bytes;
  }
  __device__ static uint32_t code_offset(const Window& window) { return Type.code_offset() - trimmed_bytes(window); }
  __device__ static uint32_t escape_offset(const Window& window) {
    return Type.escape_offset(window.width) - trimmed_bytes(window);
  }
  __device__ static uint32_t payload_bytes(const Window& window, uint32_t escapes, uint32_t far_escapes) {
    return Type.payload_bytes(window.width, escapes, far_escapes) - trimmed_bytes(window);
  }

  // Calls code_group(group) for all groups. It returns which of this lane's values are escapes, as bit 8 * byte + word.
  template <typename CodeGroup>
  __device__ static void code_groups(uint32_t (&escaped)[groups], CodeGroup code_group) {
    if constexpr (unrolled) {
#pragma unroll
      for (int group = 0; group < groups; ++group) escaped[group] = code_group(group);
    } else {
#pragma unroll
      for (uint32_t& found : escaped) found = 0;
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        // The results shift through the array, because a variable index would move the array out of registers.
#pragma unroll
        for (int i = 1; i < groups; ++i) escaped[i - 1] = escaped[i];
        escaped[groups - 1] = code_group(group);
      }
    }
  }

  // Codes a group; returns the escapes for code_groups().
  __device__ static uint32_t encode_group(const char* in, char* out, Window window, int group, int lane) {
    uint32_t codes[words];
    const uint32_t escaped = as_stored<Type>(
        window.kept, [&]<ValueType Stored>() { return split_group<Stored>(in, out, window, group, lane, codes); });
    char* code_section = out + code_offset(window);
    switch (window.width) {
      case 1: pack_to<1>(codes, code_section, group, lane); break;
      case 2: pack_to<2>(codes, code_section, group, lane); break;
      case 3: pack_to<3>(codes, code_section, group, lane); break;
      case 4: pack_to<4>(codes, code_section, group, lane); break;
      default: pack_to<5>(codes, code_section, group, lane); break;
    }
    return escaped;
  }

  __device__ static uint32_t decode_group(const char* in, char* out, Window window, int group, int lane) {
    uint32_t codes[words];
    const char* code_section = in + code_offset(window);
    switch (window.width) {
      case 1: unpack_from<1>(codes, code_section, group, lane); break;
      case 2: unpack_from<2>(codes, code_section, group, lane); break;
      case 3: unpack_from<3>(codes, code_section, group, lane); break;
      case 4: unpack_from<4>(codes, code_section, group, lane); break;
      default: unpack_from<5>(codes, code_section, group, lane); break;
    }
    return as_stored<Type>(window.kept,
                           [&]<ValueType Stored>() { return join_group<Stored>(in, out, window, group, lane, codes); });
  }

  // Computes the codes of a group, and stores the rests and tails as those of `Stored`.
  template <ValueType Stored>
  __device__ static uint32_t split_group(const char* in, char* out, Window window, int group, int lane,
                                         uint32_t (&codes)[words]) {
    const Coder<Type> coder(window.base, window.escape_code());
    const uint32_t is_escape = device::bytes4(0x80 - window.escape_code());
    uint32_t rest_bits[words];
    uint32_t escaped = 0;
    uint32_t even_rest = 0;
    // Issue several loads before the first store: the compiler does not move loads across stores.
    constexpr int vectors = words * 4 / Type.vector_elems(), ahead = vectors < 4 ? vectors : 4;
    uint4 loaded[ahead];
    const auto vector_of = [&](int number) -> const uint4& {
      if (number % ahead == 0) {
#pragma unroll
        for (int i = 0; i < ahead; ++i)
          loaded[i] =
              load<uint4>(in + device::value_offset<Type.value_bytes>(group, (number + i) * Type.vector_elems(), lane));
      }
      return loaded[number % ahead];
    };
    uint4 vector;
#pragma unroll
    for (int word = 0; word < words; ++word) {
      Heads heads;
      Rest rest{};
      if constexpr (Type.value_bytes == 1) {
        if (word % 4 == 0) vector = vector_of(word / 4);
        const uint32_t four = word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w;
        heads = {{__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)}};
      } else if constexpr (Type.value_bytes == 2) {
        if (word % 2 == 0) vector = vector_of(word / 2);
        heads = word % 2 == 0 ? Heads{{vector.x, vector.y}} : Heads{{vector.z, vector.w}};
      } else if constexpr (Type.value_bytes == 4) {
        vector = vector_of(word);
        heads = upper_halves(vector);
        rest.tails = lower_halves(vector);
      } else {
        uint4 narrow;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          vector = vector_of(2 * word + half);
          heads.pair[half] = __byte_perm(vector.y, vector.w, 0x7632);
          if constexpr (Stored.trimmed_bits() != 0) {
            (half == 0 ? narrow.x : narrow.z) = narrowed(vector.x, vector.y);
            (half == 0 ? narrow.y : narrow.w) = narrowed(vector.z, vector.w);
          } else {
            char* to = out + tail_offset<Stored>(group, 2 * word + half, lane);
            store(to, vector.x);
            store(to + 4, __byte_perm(vector.y, vector.z, 0x5410));
            store(to + 8, __byte_perm(vector.z, vector.w, 0x5432));
          }
        }
        if constexpr (Stored.trimmed_bits() != 0)
          rest = {rest_bytes_of<float32>(upper_halves(narrow)), 0, lower_halves(narrow)};
      }

      codes[word] = coder.codes(heads);
      escaped = device::select_bits(device::bytes4(0x80), codes[word] + is_escape, escaped >> 1);
      if constexpr (Type.rest_bits != 0 && (Stored.trimmed_bits() == 0 || Type.value_bytes == 2))
        rest.bits = rest_bits_of<Type>(heads);
      if constexpr (Type.rest_bytes != 0) rest.bytes = rest_bytes_of<Type>(heads);
      if constexpr (Stored.trimmed_bits() != 0) {
        if constexpr (Type.value_bytes == 2)
          rest.bytes = upper_rest_of(rest);
        else
          rest = trimmed_rest<Stored>(rest);
      }

      if constexpr (Stored.rest_bits != 0) rest_bits[word] = rest.bits;
      if constexpr (Type.value_bytes == 2) {
        if (word % 2 == 0)
          even_rest = rest.bytes;
        else
          store(out + rest_byte_offset<Stored>(group, 4 * word - 4, lane), uint2{even_rest, rest.bytes});
      } else if constexpr (Type.value_bytes == 4) {
        if constexpr (Stored.tail_bytes != 0) store(out + tail_offset<Stored>(group, word, lane), rest.tails);
        store(out + rest_byte_offset<Stored>(group, 4 * word, lane), rest.bytes);
      } else if constexpr (Stored.rest_bytes != 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if constexpr (Stored.tail_bytes != 0)
            store(out + tail_offset<Stored>(group, 2 * word + half, lane), half == 0 ? rest.tails.x : rest.tails.y);
          store(out + rest_byte_offset<Stored>(group, 4 * word + 2 * half, lane),
                static_cast<uint16_t>(rest.bytes >> 16 * half));
        }
      }
    }
    if constexpr (Stored.rest_bits != 0)
      pack_to<Stored.rest_bits>(rest_bits, out + Stored.rest_bit_offset(), group, lane);
    return escaped;
  }

  // Joins the codes of a group with the rests and tails, which are stored as those of `Stored`.
  template <ValueType Stored>
  __device__ static uint32_t join_group(const char* in, char* out, Window window, int group, int lane,
                                        const uint32_t (&codes)[words]) {
    const uint32_t is_escape = device::bytes4(0x80 - window.escape_code());
    uint32_t rest_bits[words];
    if constexpr (Stored.rest_bits != 0)
      unpack_from<Stored.rest_bits>(rest_bits, in + Stored.rest_bit_offset(), group, lane);

    uint32_t escaped = 0;
    uint4 vector;
    // Load ahead of the stores, as in split_group.
    constexpr int ahead = Type.value_bytes == 2 ? words : words / 2;
    Rest rests[ahead] = {};
    const auto load_ahead = [&](int word) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if constexpr (Type.value_bytes == 4) {
          if constexpr (Stored.tail_bytes != 0)
            rests[i].tails = load<uint2>(in + tail_offset<Stored>(group, word + i, lane));
          rests[i].bytes = load<uint32_t>(in + rest_byte_offset<Stored>(group, 4 * (word + i), lane));
        } else if constexpr (Type.value_bytes == 8 && Stored.rest_bytes != 0) {
          if constexpr (Stored.tail_bytes != 0)
            rests[i].tails = {load<uint32_t>(in + tail_offset<Stored>(group, 2 * (word + i), lane)),
                              load<uint32_t>(in + tail_offset<Stored>(group, 2 * (word + i) + 1, lane))};
          rests[i].bytes = load<uint16_t>(in + rest_byte_offset<Stored>(group, 4 * (word + i), lane)) |
                           load<uint16_t>(in + rest_byte_offset<Stored>(group, 4 * (word + i) + 2, lane)) << 16;
        } else if (Type.value_bytes == 2 && i % 2 == 0) {
          const uint2 pair = load<uint2>(in + rest_byte_offset<Stored>(group, 4 * (word + i), lane));
          rests[i].bytes = pair.x;
          rests[i + 1].bytes = pair.y;
        }
      }
    };
#pragma unroll
    for (int word = 0; word < words; ++word) {
      escaped = device::select_bits(device::bytes4(0x80), codes[word] + is_escape, escaped >> 1);
      if (word % ahead == 0) load_ahead(word);
      Rest rest = rests[word % ahead];
      rest.bits = Stored.rest_bits != 0 ? rest_bits[word] : 0;
      if constexpr (Stored.trimmed_bits() != 0) {
        if constexpr (Type.value_bytes == 2)
          rest = float16_rest_of(rest.bytes);
        else
          rest = float32_rest_of<Stored>(rest);
        if constexpr (Type.value_bytes == 8) rest.bits = rest.bytes >> 3 & device::bytes4(0x1f);
      }
      const Heads heads = heads_of<Type>(codes[word], window.base, rest.bytes, rest.bits);

      const int sequence = 4 * word;
      if constexpr (Type.value_bytes == 1) {
        (word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w) = heads.pair[0];
        if (word % 4 == 3) store(out + device::value_offset<Type.value_bytes>(group, sequence - 12, lane), vector);
      } else if constexpr (Type.value_bytes == 2) {
        (word % 2 == 0 ? vector.x : vector.z) = heads.pair[0];
        (word % 2 == 0 ? vector.y : vector.w) = heads.pair[1];
        if (word % 2 == 1) store(out + device::value_offset<Type.value_bytes>(group, sequence - 4, lane), vector);
      } else if constexpr (Type.value_bytes == 4) {
        const uint2 two = rest.tails;
        store(out + device::value_offset<Type.value_bytes>(group, sequence, lane),
              uint4{__byte_perm(two.x, heads.pair[0], 0x5410), __byte_perm(two.x, heads.pair[0], 0x7632),
                    __byte_perm(two.y, heads.pair[1], 0x5410), __byte_perm(two.y, heads.pair[1], 0x7632)});
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint4 two;
          if constexpr (Stored.trimmed_bits() != 0) {
            two = widened(heads.pair[half], __byte_perm(rest.bytes, 0, half == 0 ? 0x4140 : 0x4342),
                          half == 0 ? rest.tails.x : rest.tails.y);
          } else {
            const char* from = in + tail_offset<Stored>(group, 2 * word + half, lane);
            const uint32_t first = load<uint32_t>(from), second = load<uint32_t>(from + 4),
                           third = load<uint32_t>(from + 8);
            two = {first, __byte_perm(second, heads.pair[half], 0x5410), __byte_perm(second, third, 0x5432),
                   __byte_perm(third, heads.pair[half], 0x7632)};
          }
          store(out + device::value_offset<Type.value_bytes>(group, sequence + 2 * half, lane), two);
        }
      }
    }
    return escaped;
  }

  // Payload offsets of a lane's data in a group: the tails of its vector number `vector`, and the rest bytes from value
  // number `sequence` on.
  template <ValueType Stored>
  __device__ static uint32_t tail_offset(int group, int vector, int lane) {
    return ((group * (32 / Type.vector_elems()) + vector) * lanes + lane) * (Type.vector_elems() * Stored.tail_bytes);
  }
  template <ValueType Stored>
  __device__ static uint32_t rest_byte_offset(int group, int sequence, int lane) {
    return Stored.rest_byte_offset() + device::value_offset<Type.value_bytes>(group, sequence, lane) / Type.value_bytes;
  }

  template <int Width>
  __device__ static void pack_to(const uint32_t (&fields)[words], char* section, int group, int lane) {
    uint32_t packed[Width];
    pack<Width>(fields, packed);
#pragma unroll
    for (int row = 0; row < Width; ++row) store(section + (group * Width + row) * row_bytes + lane * 4, packed[row]);
  }
  template <int Width>
  __device__ static void unpack_from(uint32_t (&fields)[words], const char* section, int group, int lane) {
    uint32_t packed[Width];
#pragma unroll
    for (int row = 0; row < Width; ++row)
      packed[row] = load<uint32_t>(section + (group * Width + row) * row_bytes + lane * 4);
    unpack<Width>(packed, fields);
  }

  using FarExponent = std::conditional_t<Type.far_bytes() == 2, uint16_t, uint8_t>;
  // Offset of far exponent `number`. They are stored downwards from the header word.
  __device__ static uint32_t far_offset(uint32_t payload_bytes, uint32_t number) {
    return payload_bytes - 4 - (number + 1) * Type.far_bytes();
  }

  __device__ static uint32_t token_of(uint32_t exponent, Window window) {
    const uint32_t from_lowest = exponent - window.base + below_tokens;  // wraps around below it
    const uint32_t above = from_lowest - window.escape_code();
    const uint32_t near = from_lowest < below_tokens            ? from_lowest
                          : above - below_tokens < above_tokens ? above
                                                                : far_token;
    return exponent == 0 ? zero_token : near;
  }

  // Writes tokens, far exponents and the header word. Returns the payload's size in bytes.
  __device__ static uint32_t encode_escapes(const char* in, char* out, Window window, const Escapes<Type>& escapes,
                                            EscapeList& list, int lane) {
    char* tokens = out + escape_offset(window);
    uint32_t far = 0;
    escapes.for_each(list, lane, [&](const EscapePair& pair) {
      uint32_t token[2];
      bool is_far[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        token[i] = token_of(exponent_at<Type>(in + pair.offset[i]), window);
        is_far[i] = pair.has[i] && token[i] == far_token;
      }
      if (__any_sync(device::all_lanes, is_far[0] || is_far[1])) far += FarEscapes::among(is_far).count();
      const uint32_t both = (token[0] | token[1] << 4) & (pair.has[1] ? 0xff : 0xf);
      if (pair.has[0]) store(tokens + pair.number, static_cast<uint8_t>(both));
    });

    const uint32_t bytes = payload_bytes(window, escapes.count(), far);
    if (bytes >= Type.block_bytes()) return values_bytes;
    const uint32_t padding = escape_offset(window) + (escapes.count() + 1) / 2;
    const uint32_t padding_end = far_offset(bytes, far) + Type.far_bytes();
    if (padding + lane < padding_end) store(out + padding + lane, uint8_t{0});
    if (far != 0) {
      uint32_t before = 0;
      escapes.for_each(list, lane, [&](const EscapePair& pair) {
        uint32_t exponent[2];
        bool is_far[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          exponent[i] = exponent_at<Type>(in + pair.offset[i]);
          is_far[i] = pair.has[i] && token_of(exponent[i], window) == far_token;
        }
        const FarEscapes fars = FarEscapes::among(is_far);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (is_far[i])
            store(out + far_offset(bytes, before + fars.before(i, lane)), static_cast<FarExponent>(exponent[i]));
        before += fars.count();
      });
    }
    if (lane == 0)
      store(out + bytes - 4,
            window.width | window.base << base_shift | escapes.count() << escapes_shift | window.kept << kept_shift);
    return bytes;
  }

  __device__ static bool decode_escapes(const char* in, uint32_t payload_bytes, char* out, Window window,
                                        const Escapes<Type>& escapes, EscapeList& list, int lane) {
    const char* tokens = in + escape_offset(window);
    uint32_t far = 0;
    bool fits = true;
    escapes.for_each(list, lane, [&](const EscapePair& pair) {
      const uint32_t both = pair.has[0] ? load<uint8_t>(tokens + pair.number) : 0;
      const uint32_t token[2] = {both & 15, both >> 4};
      uint32_t exponent[2];
      bool is_far[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        exponent[i] = window.base - below_tokens + token[i] + (token[i] >= below_tokens ? window.escape_code() : 0);
        if (token[i] >= zero_token) exponent[i] = 0;
        is_far[i] = pair.has[i] && token[i] == far_token;
      }
      if (__any_sync(device::all_lanes, is_far[0] || is_far[1])) {
        const FarEscapes fars = FarEscapes::among(is_far);
        // A corrupt payload may have more far tokens than far exponents.
        fits = fits && Block::payload_bytes(window, escapes.count(), far + fars.count()) <= payload_bytes;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (fits && is_far[i])
            exponent[i] = load<FarExponent>(in + far_offset(payload_bytes, far + fars.before(i, lane)));
        far += fars.count();
      }
      // Load both before storing either. A lane without an escape must not store, since another lane may store there.
      uint32_t head[2] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (pair.has[i]) head[i] = load<Head>(out + pair.offset[i] + Type.tail_bytes);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (pair.has[i])
          store(out + pair.offset[i] + Type.tail_bytes, static_cast<Head>(with_exponent(head[i], exponent[i])));
    });
    return Block::payload_bytes(window, escapes.count(), far) == payload_bytes;
  }

  // Replaces the exponent in the head of a value.
  using Head = typename ExponentField<Type>::Head;
  __device__ static uint32_t with_exponent(uint32_t head, uint32_t exponent) {
    using Field = ExponentField<Type>;
    return device::select_bits(Field::mask << Field::shift, exponent << Field::shift, head);
  }
};

}  // namespace narrowcast::codec::window
