// The coder `window` of rows (docs/format/rows.md): the tiles of a warp decode one row each from shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../codec/window/packing.cuh"
#include "../../codec/window/parts.cuh"
#include "../../device/warp.cuh"
#include "../rows/window_layout.h"
#include "gather_arguments.h"
#include "row_output.cuh"
#include "tile.cuh"

namespace narrowcast::store::cuda {

namespace window = codec::window;

// float16 after a trim of three bits: eight bits of the rest remain, one byte.
inline constexpr window::ValueType trimmed_float16{2, 5, 0, 1, 0};

// Decodes to elements of the size they had before the trim, whose trimmed bits are 0. Type: of the elements; the tails
// of float32 and float64 may be shortened by a trim.
template <window::ValueType Type>
class WindowRow {
  static constexpr int words = window::group_words, vector_elems = Type.vector_elems();
  static constexpr bool is_trimmed_float16 = Type.value_bytes == 2 && Type.exponent_bits == 5 && Type.rest_bits == 0;

 public:
  using Staged = std::conditional_t<Type.value_bytes == 1, uint8_t,
                                    std::conditional_t<Type.value_bytes == 2, uint16_t,
                                                       std::conditional_t<Type.value_bytes == 4, uint32_t, uint64_t>>>;
  static constexpr bool has_header = true;
  static constexpr uint32_t map_bit = 8 * header_bytes;
  static constexpr uint32_t piece_elems = window::group_elems;

  __device__ WindowRow(const Tile& tile, const RowFormat& row, const CoderFormat& coder, uint32_t header,
                       const char* payload, uint32_t payload_bytes, uint32_t elems, char* scratch)
      : tile_(tile),
        scratch_(scratch + device::lane_id() * 4),
        tail_bytes_(coder.tail_bytes),
        low_bits_(coder.low_bits) {
    const uint32_t before_body = header_bytes + (row.has_zeros ? (row.elems + 31) / 32 * 4 : 0);
    body_ = payload + before_body;
    available_ = payload_bytes - min(payload_bytes, before_body);
    width_ = header >> row_width_shift & row_width_mask;
    base_ = header >> row_base_shift & row_base_mask;
    escapes_ = header >> row_escapes_shift;
    lane_bytes_ = 32 * (tail_bytes_ + Type.rest_bytes) + 4 * (Type.rest_bits + width_);
    rest_at_ = elems / 32 * lane_bytes_;
    tokens_at_ = rest_at_ + elems % 32 * coded_bytes();
    far_at_ = tokens_at_ + (escapes_ + 1) / 2;
    ok_ = payload_bytes == 0 || (payload_bytes >= before_body && width_ >= 1 && width_ <= Type.max_width() &&
                                 base_ <= (1u << Type.exponent_bits) - (1u << width_) && far_at_ <= available_);
    elems_ = ok_ && payload_bytes != 0 ? elems : 0;
  }
  __device__ uint32_t elems() const { return elems_; }

  // Decodes the elements of group `piece` to `to`: to the output, or to shared memory.
  __device__ void decode(uint32_t piece, char* to, bool is_output) {
    const uint32_t whole = elems_ / window::group_elems;
    group_ = body_ + piece * 32 * lane_bytes_;
    const uint32_t lanes = piece < whole ? 32 : piece == whole ? elems_ / 32 - 32 * whole : 0;
    const bool has_elems = tile_.lane < lanes;
    Exponents exponents = {};
    uint32_t escaped = 0;
    if (has_elems) escaped = decode_codes(lanes, exponents);
    if (__any_sync(device::all_lanes, escaped != 0)) {
      // Escapes replace exponents in shared memory, because their places vary.
#pragma unroll
      for (uint32_t i = 0; i < exponent_words; ++i) store(scratch_ + i * 128, exponents[i]);
      decode_escapes(escaped);
#pragma unroll
      for (uint32_t i = 0; i < exponent_words; ++i) exponents[i] = load<uint32_t>(scratch_ + i * 128);
      __syncwarp();
    }
    if (has_elems) join_parts(lanes, exponents, to, is_output);
    if (piece == whole) copy_rest(lanes, to, is_output);
  }
  __device__ bool ok() const { return ok_ && escapes_done_ == escapes_; }

 private:
  // Of an element that is stored whole.
  __device__ uint32_t coded_bytes() const { return Type.value_bytes - Type.tail_bytes + tail_bytes_; }
  // The exponents of a lane's 32 elements: four in each word, one byte each, or two if they do not fit into bytes.
  static constexpr uint32_t exponents_in_word = Type.exponent_bits > 8 ? 2 : 4;
  static constexpr uint32_t exponent_words = 32 / exponents_in_word;
  using Exponents = uint32_t[exponent_words];
  static constexpr uint32_t exponent_mask = (1u << Type.exponent_bits) - 1;

  template <typename T>
  __device__ static T load(const char* from) {
    return *reinterpret_cast<const T*>(from);
  }
  template <typename T>
  __device__ static void store(char* to, const T& value) {
    *reinterpret_cast<T*>(to) = value;
  }
  __device__ uint32_t escape_code() const { return (1u << width_) - 1; }

  // The exponents of this lane's elements; those of escapes are those of the escape code. Returns which elements are
  // escapes, as bit 8 * byte + word.
  __device__ uint32_t decode_codes(uint32_t lanes, Exponents& exponents) const {
    uint32_t codes[words];
    const char* const section = packed_rest(lanes) + Type.rest_bits * 4 * lanes;
    switch (width_) {
      case 1: unpack_from<1>(codes, section, lanes); break;
      case 2: unpack_from<2>(codes, section, lanes); break;
      case 3: unpack_from<3>(codes, section, lanes); break;
      case 4: unpack_from<4>(codes, section, lanes); break;
      default: unpack_from<5>(codes, section, lanes); break;
    }
    const uint32_t is_escape = device::bytes4(0x80 - escape_code());
    uint32_t escaped = 0;
#pragma unroll
    for (int word = 0; word < words; ++word) {
      escaped = device::select_bits(device::bytes4(0x80), codes[word] + is_escape, escaped >> 1);
      if constexpr (exponents_in_word == 4) {
        exponents[word] = codes[word] + device::bytes4(base_);
      } else {
        exponents[2 * word] = __byte_perm(codes[word], 0, 0x4140) + device::halves2(base_);
        exponents[2 * word + 1] = __byte_perm(codes[word], 0, 0x4342) + device::halves2(base_);
      }
    }
    return escaped;
  }

  // Replaces the exponent of an element that is an escape, in `scratch_`.
  __device__ void replace_exponent(uint32_t bit, uint32_t exponent) const {
    const uint32_t word = bit % 8, byte = bit / 8;
    if constexpr (exponents_in_word == 4)
      store(scratch_ + word * 128 + byte, static_cast<uint8_t>(exponent & exponent_mask));
    else
      store(scratch_ + (2 * word + byte / 2) * 128 + byte % 2 * 2, static_cast<uint16_t>(exponent & exponent_mask));
  }

  // Joins the exponents of this lane's elements with the rest and the tails.
  __device__ void join_parts(uint32_t lanes, const Exponents& exponents, char* to, bool is_output) const {
    const char* const rest_bytes = group_ + tail_bytes_ * 32 * lanes;
    uint32_t rest_bits[words] = {};
    if constexpr (Type.rest_bits != 0) unpack_from<Type.rest_bits>(rest_bits, packed_rest(lanes), lanes);
    // Load several words before the first store: the compiler does not move loads across stores.
    constexpr int ahead = Type.value_bytes == 2 ? words : 4;
    uint32_t rests[ahead] = {};
    uint2 tails[ahead];
    uint4 vector;
#pragma unroll
    for (int word = 0; word < words; ++word) {
      if (word % ahead == 0) {
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          const uint32_t number = element(4 * (word + i), lanes);
          if constexpr (Type.rest_bytes != 0) rests[i] = load<uint32_t>(rest_bytes + number);
          if constexpr (Type.value_bytes == 4) tails[i] = tails_of_four(number);
        }
      }
      const window::Heads heads = heads_of(exponents, word, rests[word % ahead], rest_bits[word]);
      char* const place = to + element(4 * word, lanes) * Type.value_bytes;
      if constexpr (Type.value_bytes == 1) {
        (word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w) = heads.pair[0];
        if (word % 4 == 3) store_part(place - 12, vector, is_output);
      } else if constexpr (Type.value_bytes == 2) {
        (word % 2 == 0 ? vector.x : vector.z) = heads.pair[0];
        (word % 2 == 0 ? vector.y : vector.w) = heads.pair[1];
        if (word % 2 == 1) store_part(place - 8, vector, is_output);
      } else if constexpr (Type.value_bytes == 4) {
        const uint2 two = tails[word % ahead];
        store_part(place,
                   uint4{__byte_perm(two.x, heads.pair[0], 0x5410), __byte_perm(two.x, heads.pair[0], 0x7632),
                         __byte_perm(two.y, heads.pair[1], 0x5410), __byte_perm(two.y, heads.pair[1], 0x7632)},
                   is_output);
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t first = element(4 * word + 2 * half, lanes);
          const uint64_t low = tail_of(first), high = tail_of(first + 1);
          const uint32_t pair = heads.pair[half];
          store_part(to + first * 8,
                     uint4{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32) | pair << 16,
                           static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32) | (pair & 0xffff0000)},
                     is_output);
        }
      }
    }
  }
  __device__ const char* packed_rest(uint32_t lanes) const {
    return group_ + (tail_bytes_ + Type.rest_bytes) * 32 * lanes;
  }

  // The number in its group of this lane's element `sequence` (0 to 31).
  __device__ uint32_t element(uint32_t sequence, uint32_t lanes) const {
    return (sequence / vector_elems * lanes + tile_.lane) * vector_elems + sequence % vector_elems;
  }

  template <int Width>
  __device__ void unpack_from(uint32_t (&fields)[words], const char* section, uint32_t lanes) const {
    uint32_t packed[Width];
#pragma unroll
    for (int row = 0; row < Width; ++row) packed[row] = load<uint32_t>(section + (row * lanes + tile_.lane) * 4);
    window::unpack<Width>(packed, fields);
  }

  // The heads of the elements of `word`.
  __device__ static window::Heads heads_of(const Exponents& exponents, int word, uint32_t rest_bytes,
                                           uint32_t rest_bits) {
    if constexpr (exponents_in_word == 2) {
      window::Heads heads;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t rest = __byte_perm(rest_bits, 0, i == 0 ? 0x4140 : 0x4342);
        heads.pair[i] =
            exponents[2 * word + i] << 4 | (rest & device::halves2(0xf)) | (rest << 11 & device::halves2(0x8000));
      }
      return heads;
    } else if constexpr (is_trimmed_float16) {
      using device::bytes4;
      // The byte above has the sign, the exponent and two bits of the mantissa.
      const uint32_t high = (rest_bytes & bytes4(0x80)) | exponents[word] << 2 | (rest_bytes >> 5 & bytes4(3));
      const uint32_t low = rest_bytes << 3 & bytes4(0xf8);
      return {{__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)}};
    } else {
      return window::heads_of<Type>(exponents[word], 0, rest_bytes, rest_bits);
    }
  }

  // float32: the tails of elements number, ..., number + 3, two in each word.
  __device__ uint2 tails_of_four(uint32_t number) const {
    if (tail_bytes_ == 2) return {load<uint32_t>(group_ + number * 2), load<uint32_t>(group_ + number * 2 + 4)};
    if (tail_bytes_ == 0) return {0, 0};
    const uint32_t bytes = load<uint32_t>(group_ + number);  // the upper bytes of the tails
    return {__byte_perm(bytes, 0, 0x1404), __byte_perm(bytes, 0, 0x3424)};
  }
  // float64: the tail of element `number`, in the low 48 bits.
  __device__ uint64_t tail_of(uint32_t number) const {
    if (tail_bytes_ == 6) {
      const char* const at = group_ + number * 6;
      if (number % 2 == 0) return load<uint32_t>(at) | uint64_t{load<uint32_t>(at + 4) & 0xffff} << 32;
      return load<uint32_t>(at - 2) >> 16 | uint64_t{load<uint32_t>(at + 2)} << 16;
    }
    uint64_t tail = 0;
    for (uint32_t i = 0; i < tail_bytes_; ++i)
      tail |= uint64_t{load<uint8_t>(group_ + number * tail_bytes_ + i)} << 8 * i;
    return tail << 8 * (6 - tail_bytes_);
  }

  // Replaces the exponents of this lane's escapes.
  __device__ void decode_escapes(uint32_t escaped) {
    const uint32_t own = __popc(escaped), up_to = tile_.inclusive_scan(own);
    const uint32_t total = tile_.broadcast(up_to, tile_.lanes - 1);
    if (escapes_done_ + total > escapes_) {
      ok_ = false;
      escaped = 0;
    }
    const uint32_t number = escapes_done_ + up_to - own;
    escapes_done_ += total;
    uint32_t highest_token = 0;
    for_each_token(escaped, number, [&](uint32_t bit, uint32_t token) {
      const uint32_t near = base_ - window::below_tokens + token + (token >= window::below_tokens ? escape_code() : 0);
      replace_exponent(bit, token == window::zero_token ? 0 : near);
      highest_token = max(highest_token, token);
    });
    if (!__any_sync(device::all_lanes, highest_token == window::far_token)) return;
    uint32_t far = 0;
    for_each_token(escaped, number,
                   [&](uint32_t bit, uint32_t token) { far |= token == window::far_token ? 1u << bit : 0; });
    const uint32_t own_far = __popc(far), far_up_to = tile_.inclusive_scan(own_far);
    const uint32_t total_far = tile_.broadcast(far_up_to, tile_.lanes - 1);
    if (far_at_ + (far_done_ + total_far) * Type.far_bytes() > available_) {
      ok_ = false;
      far = 0;
    }
    for (uint32_t at = far_done_ + far_up_to - own_far; far != 0; far &= far - 1, ++at) {
      uint32_t exponent = load<uint8_t>(body_ + far_at_ + at * Type.far_bytes());
      if constexpr (Type.far_bytes() == 2) exponent |= load<uint8_t>(body_ + far_at_ + at * 2 + 1) << 8;
      replace_exponent(static_cast<uint32_t>(__ffs(static_cast<int>(far)) - 1), exponent);
    }
    far_done_ += total_far;
  }
  // Calls visit(bit, token) for each bit of `escaped`, from the lowest up. Their tokens begin with token `number`.
  template <typename Visit>
  __device__ void for_each_token(uint32_t escaped, uint32_t number, Visit visit) const {
#pragma unroll 1
    for (; escaped != 0; number += 8) {
      // Eight tokens. May load a word beyond the last one.
      const uint32_t first_bit = tokens_at_ * 8 + number * 4;
      const char* const word = body_ + first_bit / 32 * 4;
      uint32_t tokens = __funnelshift_r(load<uint32_t>(word), load<uint32_t>(word + 4), first_bit % 32);
#pragma unroll 1
      for (int i = 0; i < 8 && escaped != 0; ++i, escaped &= escaped - 1, tokens >>= 4)
        visit(static_cast<uint32_t>(__ffs(static_cast<int>(escaped)) - 1), tokens & 15);
    }
  }

  // The elements after the last lane are stored whole.
  __device__ void copy_rest(uint32_t lanes, char* to, bool is_output) const {
    for (uint32_t i = tile_.lane; i < elems_ % 32; i += tile_.lanes) {
      uint64_t value = 0;
      for (uint32_t byte = 0; byte < coded_bytes(); ++byte)
        value |= uint64_t{load<uint8_t>(body_ + rest_at_ + i * coded_bytes() + byte)} << 8 * byte;
      // Bits above those of the element are lost.
      store_part(to + (lanes * 32 + i) * sizeof(Staged), static_cast<Staged>(value << low_bits_), is_output);
    }
  }

  const Tile& tile_;
  char* scratch_;  // of this lane: words at a distance of 128 bytes
  const char* body_;
  const char* group_ = nullptr;  // the sections of the current group
  uint32_t available_, elems_, tail_bytes_, low_bits_;
  uint32_t width_, base_, escapes_, lane_bytes_;
  uint32_t rest_at_, tokens_at_, far_at_;  // offsets in the body
  uint32_t escapes_done_ = 0, far_done_ = 0;
  bool ok_;
};

}  // namespace narrowcast::store::cuda
