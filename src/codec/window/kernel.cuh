// The codec `window` on the GPU: one warp codes one block between two buffers in shared memory (docs/format/window.md).
// No allocation, no barrier wider than the warp: usable inside any kernel. reference.cc computes the same bytes.
#pragma once

#include <cstdint>

#include "codec/window/packing.cuh"
#include "codec/window/parts.cuh"
#include "device/warp.cuh"
#include "format/window.h"

namespace narrowcast::codec::window {

template <format::window::ValueType Type>
class Block {
  using ValueType = format::window::ValueType;
  static constexpr int words = format::window::group_words;
  static constexpr int groups = Type.groups();

 public:
  static constexpr uint32_t values_bytes = Type.block_bytes();
  static constexpr uint32_t payload_capacity = Type.block_bytes();
  // Shared memory of each warp that encodes, 4-byte aligned.
  struct Scratch {
    uint32_t histogram[format::window::bins];
  };

  // Encodes a block. values, payload: shared memory, 16-byte aligned, values_bytes and payload_capacity long; values are
  // visible to the whole warp. Returns the payload's bytes in all lanes, a multiple of 16. values_bytes means that the
  // block is stored raw: its payload is `values`, and `payload` holds nothing of use.
  __device__ static uint32_t encode(const void* values, void* payload, Scratch& scratch, int lane) {
    const auto* in = static_cast<const char*>(values);
    auto* out = static_cast<char*>(payload);
    const Window window = choose_window(in, scratch, lane);
    if (window.width == 0) return values_bytes;

    uint32_t escaped[groups];
    uint32_t lane_escapes = 0;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      escaped[group] = encode_group(in, out, window, group, lane);
      lane_escapes += __popc(escaped[group]);
    }
    const uint32_t through = device::inclusive_scan(lane_escapes, lane);
    const uint32_t escapes = __shfl_sync(device::all_lanes, through, 31);
    if (Type.payload_bytes(window.width, escapes, 0) >= Type.block_bytes()) return values_bytes;
    return encode_escapes(in, out, window, escaped, through - lane_escapes, escapes, lane);
  }

  // Decodes a block. payload: 16-byte aligned, payload_bytes <= payload_capacity long, whatever its bytes. values: shared
  // memory, 16-byte aligned; each lane writes its own 16-byte vectors, so the warp synchronises before it reads them.
  // Returns the same in all lanes: false when the payload does not follow the format (values are then unspecified).
  // A raw payload (payload_bytes == values_bytes) is the values themselves and not for this function.
  __device__ static bool decode(const void* payload, uint32_t payload_bytes, void* values, int lane) {
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
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      escaped[group] = decode_group(in, out, window, group, lane);
      lane_escapes += __popc(escaped[group]);
    }
    const uint32_t through = device::inclusive_scan(lane_escapes, lane);
    if (__shfl_sync(device::all_lanes, through, 31) != escapes) return false;
    return decode_escapes(in, payload_bytes, out, window, escaped, through - lane_escapes, escapes, lane);
  }

 private:
  struct Window {
    uint32_t width;  // 0: the block is stored raw
    uint32_t base;
    __device__ uint32_t escape_code() const { return (1u << width) - 1; }
  };

  template <typename T>
  __device__ static T load(const char* from) {
    return *reinterpret_cast<const T*>(from);
  }
  template <typename T>
  __device__ static void store(char* to, const T& value) {
    *reinterpret_cast<T*>(to) = value;
  }

  // The 16 bits that hold a value's exponent; `shift` places it at the bottom.
  static constexpr int exponent_shift = Type.value_bytes == 1 ? Type.mantissa_bits() : 15 - Type.exponent_bits;
  static constexpr uint32_t exponent_mask = (1u << Type.exponent_bits) - 1;
  using Head = std::conditional_t<Type.value_bytes == 1, uint8_t, uint16_t>;
  __device__ static uint32_t exponent_at(const char* value) {
    return static_cast<uint32_t>(load<Head>(value + Type.tail_bytes)) >> exponent_shift & exponent_mask;
  }

  // As reference.cc's choose_window, a bin of the histogram to a lane.
  __device__ static Window choose_window(const char* values, Scratch& scratch, int lane) {
    using namespace format::window;
    uint32_t sample[samples_per_lane];
    uint32_t smallest = ~0u;
#pragma unroll
    for (int i = 0; i < samples_per_lane; ++i) {
      sample[i] = exponent_at(values + i * (Type.block_bytes() / samples_per_lane) + lane * vector_bytes +
                              (lane + i) % Type.vector_elems() * Type.value_bytes);
      smallest = min(smallest, sample[i]);
    }
    scratch.histogram[lane] = 0;
    const int anchor = static_cast<int>(__reduce_max_sync(device::all_lanes, smallest));
    const int lowest = max(anchor - bins_below_anchor, 0);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < samples_per_lane; ++i)
      atomicAdd(&scratch.histogram[min(max(static_cast<int>(sample[i]) - lowest, 0), bins - 1)], 1u);
    __syncwarp();
    const uint32_t count = scratch.histogram[lane];
    const uint32_t through = device::inclusive_scan(count, lane);

    Window best{0, 0};
    uint32_t best_cost = Type.exponent_bits * samples;
#pragma unroll
    for (int width = Type.max_width(); width >= 1; --width) {
      const int last = min(lane + (1 << width) - 2, bins - 1);
      const uint32_t covered = __shfl_sync(device::all_lanes, through, last) - through + count;
      // The largest cover and, of equals, the lowest bin.
      const uint32_t most = __reduce_max_sync(device::all_lanes, covered << 5 | (31 - lane));
      const uint32_t cost = width * samples + escape_cost_bits * (samples - (most >> 5));
      if (cost < best_cost) {
        best_cost = cost;
        best = {static_cast<uint32_t>(width), min(lowest + 31 - (most & 31), (1u << Type.exponent_bits) - (1u << width))};
      }
    }
    return best;
  }

  // Four values' tails as they stand in a payload.
  static constexpr int tail_words = Type.tail_bytes;  // words for four values: 4 * tail_bytes / 4

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
        store(out + tail_offset(group, word, lane), uint2{__byte_perm(vector.x, vector.y, 0x5410),
                                                          __byte_perm(vector.z, vector.w, 0x5410)});
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
          const uint32_t first = load<uint32_t>(from), second = load<uint32_t>(from + 4), third = load<uint32_t>(from + 8);
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

  // Visits this lane's escapes in order: visit(index of the escape among all, byte offset of its value in the block).
  template <typename Visit>
  __device__ static void for_each_escape(const uint32_t (&escaped)[groups], uint32_t first, int lane, Visit visit) {
    uint32_t index = first;
#pragma unroll
    for (int group = 0; group < groups; ++group)
      for (uint32_t left = escaped[group]; left != 0; left &= left - 1) {
        const uint32_t bit = __ffs(left) - 1;
        visit(index++, value_offset<Type>(group, bit % 8 * 4 + bit / 8, lane));
      }
  }

  // Writes tokens, far exponents and the header word; returns the payload's bytes.
  __device__ static uint32_t encode_escapes(const char* in, char* out, Window window, const uint32_t (&escaped)[groups],
                                            uint32_t first, uint32_t escapes, int lane) {
    using namespace format::window;
    char* tokens = out + Type.escape_offset(window.width);
    const uint32_t token_words = (escapes + 7) / 8;
    uint32_t bytes = Type.payload_bytes(window.width, escapes, 0);
    // Tokens are or-ed in, and what they leave is padding.
    const uint32_t tail_words_of_payload = (bytes - Type.escape_offset(window.width)) / 4;
    for (uint32_t word = lane; word < tail_words_of_payload; word += lanes) store(tokens + word * 4, 0u);
    __syncwarp();

    const int below_base = static_cast<int>(window.base) - below_tokens;
    const uint32_t reach = window.escape_code();
    uint32_t lane_far = 0;
    for_each_escape(escaped, first, lane, [&](uint32_t index, uint32_t offset) {
      const uint32_t exponent = exponent_at(in + offset);
      const uint32_t from_lowest = exponent - below_base;  // wraps round below it
      uint32_t token = from_lowest < below_tokens ? from_lowest : from_lowest - reach;
      const bool near = from_lowest < below_tokens || (token >= below_tokens && token < zero_token);
      token = exponent == 0 ? zero_token : near ? token : far_token;
      lane_far += token == far_token;
      atomicOr(reinterpret_cast<uint32_t*>(tokens) + index / 8, token << index % 8 * 4);
    });

    if (__any_sync(device::all_lanes, lane_far != 0)) {
      const uint32_t through = device::inclusive_scan(lane_far, lane);
      const uint32_t far = __shfl_sync(device::all_lanes, through, 31);
      const uint32_t with_far = Type.payload_bytes(window.width, escapes, far);
      if (with_far >= Type.block_bytes()) return values_bytes;
      for (uint32_t at = bytes + lane * 4; at < with_far; at += row_bytes) store(out + at, 0u);
      bytes = with_far;
      __syncwarp();
      uint32_t far_index = through - lane_far;
      for_each_escape(escaped, first, lane, [&](uint32_t index, uint32_t offset) {
        const uint32_t token = load<uint32_t>(tokens + index / 8 * 4) >> index % 8 * 4 & 15;
        if (token != far_token) return;
        ++far_index;
        store(out + bytes - 4 - far_index * Type.far_bytes(), static_cast<FarExponent>(exponent_at(in + offset)));
      });
    }
    (void)token_words;
    if (lane == 0) store(out + bytes - 4, window.width | window.base << base_shift | escapes << escapes_shift);
    return bytes;
  }

  using FarExponent = std::conditional_t<Type.far_bytes() == 2, uint16_t, uint8_t>;

  __device__ static bool decode_escapes(const char* in, uint32_t payload_bytes, char* out, Window window,
                                        const uint32_t (&escaped)[groups], uint32_t first, uint32_t escapes, int lane) {
    using namespace format::window;
    const char* tokens = in + Type.escape_offset(window.width);
    const uint32_t reach = window.escape_code();
    uint32_t lane_far = 0;
    for_each_escape(escaped, first, lane, [&](uint32_t index, uint32_t offset) {
      const uint32_t token = load<uint8_t>(tokens + index / 2) >> index % 2 * 4 & 15;
      uint32_t exponent = window.base - below_tokens + token + (token >= below_tokens ? reach : 0);
      if (token >= zero_token) exponent = 0;
      lane_far += token == far_token;
      set_exponent(out + offset, exponent);
    });
    if (!__any_sync(device::all_lanes, lane_far != 0)) return Type.payload_bytes(window.width, escapes, 0) == payload_bytes;

    const uint32_t through = device::inclusive_scan(lane_far, lane);
    const uint32_t far = __shfl_sync(device::all_lanes, through, 31);
    if (Type.payload_bytes(window.width, escapes, far) != payload_bytes) return false;
    uint32_t far_index = through - lane_far;
    for_each_escape(escaped, first, lane, [&](uint32_t index, uint32_t offset) {
      const uint32_t token = load<uint8_t>(tokens + index / 2) >> index % 2 * 4 & 15;
      if (token != far_token) return;
      ++far_index;
      set_exponent(out + offset, load<FarExponent>(in + payload_bytes - 4 - far_index * Type.far_bytes()));
    });
    return true;
  }

  __device__ static void set_exponent(char* value, uint32_t exponent) {
    constexpr uint32_t mask = exponent_mask << exponent_shift;
    const uint32_t head = load<Head>(value + Type.tail_bytes);
    store(value + Type.tail_bytes, static_cast<Head>((head & ~mask) | (exponent << exponent_shift & mask)));
  }
};

}  // namespace narrowcast::codec::window
