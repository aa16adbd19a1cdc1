// The codec `window` on the GPU: one warp codes one block between two buffers in shared memory (docs/format/window.md).
// No allocation, no barrier wider than the warp: usable inside any kernel. reference.cc computes the same bytes.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "../../format/window.h"
#include "packing.cuh"
#include "parts.cuh"
#include "placement.cuh"

namespace narrowcast::codec::window {

template <format::window::ValueType Type>
class Block {
  static constexpr int words = format::window::group_words;
  static constexpr int groups = Type.groups();

 public:
  static constexpr uint32_t values_bytes = Type.block_bytes();
  static constexpr uint32_t payload_capacity = Type.block_bytes();
  // Shared memory that a warp works in, 4-byte aligned.
  union Scratch {
    Histogram histogram;
    uint16_t escapes[224];  // where they are, some at a time
  };

  // Both functions: `unrolled` has the groups' code side by side, which is faster alone; else it is there once, which is
  // faster beside other code that shares the instruction cache.

  // Encodes a block. values, payload: shared memory, 16-byte aligned, values_bytes and payload_capacity long; values are
  // visible to the whole warp. Returns the payload's bytes in all lanes, a multiple of 16. values_bytes means that the
  // block is stored raw: its payload is `values`, and `payload` holds nothing of use.
  template <bool unrolled = true>
  __device__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(values);
    auto* out = static_cast<char*>(payload);
    const Window window = place_window<Type>(in, scratch.histogram, lane);
    if (window.width == 0) return values_bytes;

    uint32_t escaped[groups];
    uint32_t lane_escapes = 0;
    if constexpr (unrolled) {
#pragma unroll
      for (int group = 0; group < groups; ++group) {
        escaped[group] = encode_group(in, out, window, group, lane);
        lane_escapes += __popc(escaped[group]);
      }
    } else {
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        escaped[group] = encode_group(in, out, window, group, lane);
        lane_escapes += __popc(escaped[group]);
      }
    }
    const uint32_t through = device::inclusive_scan(lane_escapes);
    const uint32_t escapes = __shfl_sync(device::all_lanes, through, 31);
    if (Type.payload_bytes(window.width, escapes, 0) >= Type.block_bytes()) return values_bytes;
    return encode_escapes(in, out, window, {escaped, through - lane_escapes, escapes}, scratch, lane);
  }

  // Decodes a block. payload: 16-byte aligned, payload_bytes <= payload_capacity long, whatever its bytes. values: shared
  // memory, 16-byte aligned; the warp synchronises before it reads them. Returns the same in all lanes: false when the
  // payload does not follow the format (values are then unspecified). A raw payload (payload_bytes == values_bytes) is
  // the values themselves and not for this function.
  template <bool unrolled = true>
  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(payload);
    auto* out = static_cast<char*>(values);
    const uint32_t header = load<uint32_t>(in + payload_bytes - 4);
    const Window window{header & format::window::width_mask,
                        header >> format::window::base_shift & format::window::base_mask};
    const uint32_t escapes = header >> format::window::escapes_shift;
    if (window.width < 1 || window.width > Type.max_width() || escapes > Type.block_elems() ||
        window.base > (1u << Type.exponent_bits) - (1u << window.width) ||
        Type.payload_bytes(window.width, escapes, 0) > payload_bytes)
      return false;

    uint32_t escaped[groups];
    uint32_t lane_escapes = 0;
    if constexpr (unrolled) {
#pragma unroll
      for (int group = 0; group < groups; ++group) {
        escaped[group] = decode_group(in, out, window, group, lane);
        lane_escapes += __popc(escaped[group]);
      }
    } else {
#pragma unroll 1
      for (int group = 0; group < groups; ++group) {
        escaped[group] = decode_group(in, out, window, group, lane);
        lane_escapes += __popc(escaped[group]);
      }
    }
    const uint32_t through = device::inclusive_scan(lane_escapes);
    if (__shfl_sync(device::all_lanes, through, 31) != escapes) return false;
    return decode_escapes(in, payload_bytes, out, window, {escaped, through - lane_escapes, escapes}, scratch, lane);
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

  // Codes one group of this lane; returns which of its values are escapes: bit 8 * byte + word.
  __device__ static uint32_t encode_group(const char* in, char* out, Window window, int group, int lane) {
    const Coder<Type> coder(window.base, window.escape_code());
    const uint32_t is_escape = device::bytes4(0x80 - window.escape_code());
    uint32_t codes[words], rest_bits[words];
    uint32_t escaped = 0;
    uint4 vector;
    uint32_t even_rest = 0;
#pragma unroll
    for (int word = 0; word < words; ++word) {
      const int sequence = 4 * word;
      const char* from = in + value_offset<Type>(group, sequence, lane);
      Heads heads;
      if constexpr (Type.value_bytes == 1) {
        if (word % 4 == 0) vector = load<uint4>(from);
        const uint32_t four = word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w;
        heads = {{__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)}};
      } else if constexpr (Type.value_bytes == 2) {
        if (word % 2 == 0) vector = load<uint4>(from);
        heads = word % 2 == 0 ? Heads{{vector.x, vector.y}} : Heads{{vector.z, vector.w}};
      } else if constexpr (Type.value_bytes == 4) {
        vector = load<uint4>(from);
        heads = {{__byte_perm(vector.x, vector.y, 0x7632), __byte_perm(vector.z, vector.w, 0x7632)}};
        store(out + tail_offset(group, word, lane),
              uint2{__byte_perm(vector.x, vector.y, 0x5410), __byte_perm(vector.z, vector.w, 0x5410)});
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          vector = load<uint4>(in + value_offset<Type>(group, sequence + 2 * half, lane));
          heads.pair[half] = __byte_perm(vector.y, vector.w, 0x7632);
          char* to = out + tail_offset(group, 2 * word + half, lane);
          store(to, vector.x);
          store(to + 4, __byte_perm(vector.y, vector.z, 0x5410));
          store(to + 8, __byte_perm(vector.z, vector.w, 0x5432));
        }
      }

      codes[word] = coder.codes(heads);
      escaped = device::select_bits(device::bytes4(0x80), codes[word] + is_escape, escaped >> 1);
      if constexpr (Type.rest_bits != 0) rest_bits[word] = rest_bits_of<Type>(heads);
      if constexpr (Type.rest_bytes != 0) {
        const uint32_t rest = rest_bytes_of<Type>(heads);
        if constexpr (Type.value_bytes == 4) {
          store(out + rest_byte_offset(group, word, lane), rest);
        } else if (word % 2 == 0) {
          even_rest = rest;
        } else {
          store(out + rest_byte_offset(group, word - 1, lane), uint2{even_rest, rest});
        }
      }
    }

    if constexpr (Type.rest_bits != 0) pack_to<Type.rest_bits>(rest_bits, out + Type.rest_bit_offset(), group, lane);
    char* code_section = out + Type.code_offset();
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
    const uint32_t is_escape = device::bytes4(0x80 - window.escape_code());
    uint32_t codes[words], rest_bits[words];
    const char* code_section = in + Type.code_offset();
    switch (window.width) {
      case 1: unpack_from<1>(codes, code_section, group, lane); break;
      case 2: unpack_from<2>(codes, code_section, group, lane); break;
      case 3: unpack_from<3>(codes, code_section, group, lane); break;
      case 4: unpack_from<4>(codes, code_section, group, lane); break;
      default: unpack_from<5>(codes, code_section, group, lane); break;
    }
    if constexpr (Type.rest_bits != 0) unpack_from<Type.rest_bits>(rest_bits, in + Type.rest_bit_offset(), group, lane);

    uint32_t escaped = 0;
    uint4 vector;
    uint2 rest_pair = {0, 0};
#pragma unroll
    for (int word = 0; word < words; ++word) {
      escaped = device::select_bits(device::bytes4(0x80), codes[word] + is_escape, escaped >> 1);
      uint32_t rest = 0;
      if constexpr (Type.rest_bytes != 0) {
        if constexpr (Type.value_bytes == 4) {
          rest = load<uint32_t>(in + rest_byte_offset(group, word, lane));
        } else {
          if (word % 2 == 0) rest_pair = load<uint2>(in + rest_byte_offset(group, word, lane));
          rest = word % 2 == 0 ? rest_pair.x : rest_pair.y;
        }
      }
      const Heads heads = heads_of<Type>(codes[word], window.base, rest, Type.rest_bits != 0 ? rest_bits[word] : 0);

      const int sequence = 4 * word;
      if constexpr (Type.value_bytes == 1) {
        (word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w) = heads.pair[0];
        if (word % 4 == 3) store(out + value_offset<Type>(group, sequence - 12, lane), vector);
      } else if constexpr (Type.value_bytes == 2) {
        (word % 2 == 0 ? vector.x : vector.z) = heads.pair[0];
        (word % 2 == 0 ? vector.y : vector.w) = heads.pair[1];
        if (word % 2 == 1) store(out + value_offset<Type>(group, sequence - 4, lane), vector);
      } else if constexpr (Type.value_bytes == 4) {
        const uint2 tails = load<uint2>(in + tail_offset(group, word, lane));
        store(out + value_offset<Type>(group, sequence, lane),
              uint4{__byte_perm(tails.x, heads.pair[0], 0x5410), __byte_perm(tails.x, heads.pair[0], 0x7632),
                    __byte_perm(tails.y, heads.pair[1], 0x5410), __byte_perm(tails.y, heads.pair[1], 0x7632)});
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const char* from = in + tail_offset(group, 2 * word + half, lane);
          const uint32_t first = load<uint32_t>(from), second = load<uint32_t>(from + 4),
                         third = load<uint32_t>(from + 8);
          store(out + value_offset<Type>(group, sequence + 2 * half, lane),
                uint4{first, __byte_perm(second, heads.pair[half], 0x5410), __byte_perm(second, third, 0x5432),
                      __byte_perm(third, heads.pair[half], 0x7632)});
        }
      }
    }
    return escaped;
  }

  // Where a lane's tails of its `vector`th 16 bytes of the group go, and its rest bytes of the four values of `word`.
  __device__ static uint32_t tail_offset(int group, int vector, int lane) {
    return ((group * (32 / Type.vector_elems()) + vector) * format::window::lanes + lane) *
           (Type.vector_elems() * Type.tail_bytes);
  }
  __device__ static uint32_t rest_byte_offset(int group, int word, int lane) {
    return Type.rest_byte_offset() + value_offset<Type>(group, 4 * word, lane) / Type.value_bytes;
  }

  template <int Width>
  __device__ static void pack_to(const uint32_t (&fields)[words], char* section, int group, int lane) {
    uint32_t packed[Width];
    pack<Width>(fields, packed);
#pragma unroll
    for (int row = 0; row < Width; ++row)
      store(section + (group * Width + row) * format::window::row_bytes + lane * 4, packed[row]);
  }
  template <int Width>
  __device__ static void unpack_from(uint32_t (&fields)[words], const char* section, int group, int lane) {
    uint32_t packed[Width];
#pragma unroll
    for (int row = 0; row < Width; ++row)
      packed[row] = load<uint32_t>(section + (group * Width + row) * format::window::row_bytes + lane * 4);
    unpack<Width>(packed, fields);
  }

  // The escapes of a block as the lanes found them.
  struct Escapes {
    const uint32_t (&escaped)[groups];  // of this lane: bit 8 * byte + word
    uint32_t first;                     // number of this lane's first among all
    uint32_t total;
  };

  // The whole warp visits escapes 32 at a time, in order: visit(number, byte offset of its value in the block, whether this
  // lane has one). Lanes that hold many escapes only list them; the work on them is spread evenly.
  template <typename Visit>
  __device__ static void for_each_escape(const Escapes& escapes, Scratch& scratch, int lane, Visit visit) {
    constexpr uint32_t capacity = sizeof scratch.escapes / sizeof *scratch.escapes;
    // A listed escape: lane at 4 (where it counts vectors), bit at 9, group at 14.
    static_assert(groups <= 4 && format::window::vector_bytes == 1 << 4);
    const uint32_t offset_of_bit = value_offset<Type>(0, lane % 8 * 4 + lane / 8, 0);  // this lane's number as a bit
    uint32_t left[groups];
#pragma unroll
    for (int group = 0; group < groups; ++group) left[group] = escapes.escaped[group];
    uint32_t next = escapes.first;  // counted from the first of this round
    for (uint32_t begin = 0; begin < escapes.total; begin += capacity, next -= capacity) {
#pragma unroll
      for (int group = 0; group < groups; ++group)
        for (; left[group] != 0 && next < capacity; left[group] &= left[group] - 1)
          scratch.escapes[next++] = static_cast<uint16_t>((__ffs(left[group]) - 1) * 512 + lane * 16 + group * 16384);
      __syncwarp();
      const uint32_t listed = min(escapes.total - begin, capacity);
#pragma unroll 1  // few turns, and the code stays in the instruction cache
      for (uint32_t at = lane; at - lane < listed; at += 32) {
        const uint32_t where = scratch.escapes[at];
        const uint32_t offset = __shfl_sync(device::all_lanes, offset_of_bit, where / 512) + (where & 31 * 16) +
                                where / 16384 * (format::window::group_elems * Type.value_bytes);
        visit(begin + at, offset, at < listed);
      }
      __syncwarp();
    }
  }

  using FarExponent = std::conditional_t<Type.far_bytes() == 2, uint16_t, uint8_t>;
  // Where the far exponent of that number ends, counted from the header word down.
  __device__ static uint32_t far_offset(uint32_t payload_bytes, uint32_t number) {
    return payload_bytes - 4 - (number + 1) * Type.far_bytes();
  }
  // Far escapes before this lane's, of which `before` come before the warp's.
  __device__ static uint32_t far_number(uint32_t before, uint32_t far_lanes, int lane) {
    return before + __popc(far_lanes & ((1u << lane) - 1));
  }

  __device__ static uint32_t token_of(uint32_t exponent, Window window) {
    using namespace format::window;
    const uint32_t from_lowest = exponent - window.base + below_tokens;  // wraps round below it
    const uint32_t above = from_lowest - window.escape_code();
    if (exponent == 0) return zero_token;
    if (from_lowest < below_tokens) return from_lowest;
    return above >= below_tokens && above < zero_token ? above : far_token;
  }

  // Writes tokens, far exponents and the header word; returns the payload's bytes.
  __device__ static uint32_t encode_escapes(const char* in, char* out, Window window, const Escapes& escapes,
                                            Scratch& scratch, int lane) {
    using namespace format::window;
    char* tokens = out + Type.escape_offset(window.width);
    uint32_t far = 0;
    for_each_escape(escapes, scratch, lane, [&](uint32_t number, uint32_t offset, bool has_one) {
      const uint32_t token = has_one ? token_of(exponent_at<Type>(in + offset), window) : 0;
      far += __popc(__ballot_sync(device::all_lanes, token == far_token));
      const uint32_t following = __shfl_down_sync(device::all_lanes, token, 1);
      if (has_one && lane % 2 == 0) store(tokens + number / 2, static_cast<uint8_t>(token | following << 4));
    });

    const uint32_t bytes = Type.payload_bytes(window.width, escapes.total, far);
    if (bytes >= Type.block_bytes()) return values_bytes;
    const uint32_t padding = Type.escape_offset(window.width) + (escapes.total + 1) / 2;
    const uint32_t padding_end = far_offset(bytes, far) + Type.far_bytes();
    if (padding + lane < padding_end) store(out + padding + lane, uint8_t{0});
    if (far != 0) {
      uint32_t before = 0;
      for_each_escape(escapes, scratch, lane, [&](uint32_t, uint32_t offset, bool has_one) {
        const uint32_t exponent = has_one ? exponent_at<Type>(in + offset) : 0;
        const bool is_far = has_one && token_of(exponent, window) == far_token;
        const uint32_t far_lanes = __ballot_sync(device::all_lanes, is_far);
        if (is_far)
          store(out + far_offset(bytes, far_number(before, far_lanes, lane)), static_cast<FarExponent>(exponent));
        before += __popc(far_lanes);
      });
    }
    if (lane == 0) store(out + bytes - 4, window.width | window.base << base_shift | escapes.total << escapes_shift);
    return bytes;
  }

  __device__ static bool decode_escapes(const char* in, uint32_t payload_bytes, char* out, Window window,
                                        const Escapes& escapes, Scratch& scratch, int lane) {
    using namespace format::window;
    const char* tokens = in + Type.escape_offset(window.width);
    uint32_t far = 0;
    bool fits = true;
    for_each_escape(escapes, scratch, lane, [&](uint32_t number, uint32_t offset, bool has_one) {
      const uint32_t token = has_one ? load<uint8_t>(tokens + number / 2) >> number % 2 * 4 & 15 : 0;
      uint32_t exponent = window.base - below_tokens + token + (token >= below_tokens ? window.escape_code() : 0);
      if (token >= zero_token) exponent = 0;
      const uint32_t far_lanes = __ballot_sync(device::all_lanes, token == far_token);
      if (far_lanes != 0) {
        // As many far exponents as the tokens ask for may be more than there are.
        fits = fits && Type.payload_bytes(window.width, escapes.total, far + __popc(far_lanes)) <= payload_bytes;
        if (fits && token == far_token)
          exponent = load<FarExponent>(in + far_offset(payload_bytes, far_number(far, far_lanes, lane)));
        far += __popc(far_lanes);
      }
      if (has_one) set_exponent(out + offset, exponent);
    });
    return Type.payload_bytes(window.width, escapes.total, far) == payload_bytes;
  }

  __device__ static void set_exponent(char* value, uint32_t exponent) {
    using Field = ExponentField<Type>;
    constexpr uint32_t mask = Field::mask << Field::shift;
    const uint32_t head = load<typename Field::Head>(value + Type.tail_bytes);
    store(value + Type.tail_bytes,
          static_cast<typename Field::Head>((head & ~mask) | (exponent << Field::shift & mask)));
  }
};

}  // namespace narrowcast::codec::window
