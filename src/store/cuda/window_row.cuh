// The coder `window` of rows (docs/format/rows.md): the tiles of a warp decode one row each from shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../codec/window/packing.cuh"
#include "../../codec/window/parts.cuh"
#include "../../device/warp.cuh"
#include "../rows/window_layout.h"
#include "gather_arguments.h"
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
                       const char* payload, uint32_t payload_bytes, uint32_t elems)
      : tile_(tile), tail_bytes_(coder.tail_bytes), low_bits_(coder.low_bits) {
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

  // Decodes the elements of group `piece` to `staged`.
  __device__ void decode(uint32_t piece, char* staged) {
    const uint32_t whole = elems_ / window::group_elems;
    group_ = body_ + piece * 32 * lane_bytes_;
    const uint32_t lanes = piece < whole ? 32 : piece == whole ? elems_ / 32 - 32 * whole : 0;
    uint32_t escaped = 0;
    if (tile_.lane < lanes) escaped = decode_lane(lanes, staged);
    decode_escapes(escaped, lanes, staged);
    if (piece == whole) copy_rest(lanes, staged);
  }
  __device__ bool ok() const { return ok_ && escapes_done_ == escapes_; }

 private:
  // Of an element that is stored whole.
  __device__ uint32_t coded_bytes() const { return Type.value_bytes - Type.tail_bytes + tail_bytes_; }
  using Head = typename window::ExponentField<Type>::Head;

  template <typename T>
  __device__ static T load(const char* from) {
    return *reinterpret_cast<const T*>(from);
  }
  template <typename T>
  __device__ static void store(char* to, const T& value) {
    *reinterpret_cast<T*>(to) = value;
  }
  __device__ uint32_t escape_code() const { return (1u << width_) - 1; }

  // Decodes the 32 elements of this lane. Returns which of them are escapes, as bit 8 * byte + word.
  __device__ uint32_t decode_lane(uint32_t lanes, char* staged) const {
    uint32_t codes[words], rest_bits[words] = {};
    const char* const rest_bytes = group_ + tail_bytes_ * 32 * lanes;
    const char* const packed_rest = rest_bytes + Type.rest_bytes * 32 * lanes;
    const char* const section = packed_rest + Type.rest_bits * 4 * lanes;
    switch (width_) {
      case 1: unpack_from<1>(codes, section, lanes); break;
      case 2: unpack_from<2>(codes, section, lanes); break;
      case 3: unpack_from<3>(codes, section, lanes); break;
      case 4: unpack_from<4>(codes, section, lanes); break;
      default: unpack_from<5>(codes, section, lanes); break;
    }
    if constexpr (Type.rest_bits != 0) unpack_from<Type.rest_bits>(rest_bits, packed_rest, lanes);

    const uint32_t is_escape = device::bytes4(0x80 - escape_code());
    // Load several words before the first store: the compiler does not move loads across stores.
    constexpr int ahead = 4;
    uint32_t rests[ahead] = {};
    uint4 vector;
    uint32_t escaped = 0;
#pragma unroll
    for (int word = 0; word < words; ++word) {
      escaped = device::select_bits(device::bytes4(0x80), codes[word] + is_escape, escaped >> 1);
      if constexpr (Type.rest_bytes != 0) {
        if (word % ahead == 0) {
#pragma unroll
          for (int i = 0; i < ahead; ++i) rests[i] = load<uint32_t>(rest_bytes + element(4 * (word + i), lanes));
        }
      }
      const window::Heads heads = heads_of(codes[word], rests[word % ahead], rest_bits[word]);
      char* const to = staged + element(4 * word, lanes) * Type.value_bytes;
      if constexpr (Type.value_bytes == 1) {
        (word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w) = heads.pair[0];
        if (word % 4 == 3) store(to - 12, vector);
      } else if constexpr (Type.value_bytes == 2) {
        (word % 2 == 0 ? vector.x : vector.z) = heads.pair[0];
        (word % 2 == 0 ? vector.y : vector.w) = heads.pair[1];
        if (word % 2 == 1) store(to - 8, vector);
      } else if constexpr (Type.value_bytes == 4) {
        const uint2 tails = tails_of_four(element(4 * word, lanes));
        store(to, uint4{__byte_perm(tails.x, heads.pair[0], 0x5410), __byte_perm(tails.x, heads.pair[0], 0x7632),
                        __byte_perm(tails.y, heads.pair[1], 0x5410), __byte_perm(tails.y, heads.pair[1], 0x7632)});
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t first = element(4 * word + 2 * half, lanes);
          const uint64_t low = tail_of(first), high = tail_of(first + 1);
          const uint32_t pair = heads.pair[half];
          store(staged + first * 8,
                uint4{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32) | pair << 16,
                      static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32) | (pair & 0xffff0000)});
        }
      }
    }
    return escaped;
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

  __device__ window::Heads heads_of(uint32_t codes, uint32_t rest_bytes, uint32_t rest_bits) const {
    if constexpr (is_trimmed_float16) {
      using device::bytes4;
      // The byte above has the sign, the exponent and two bits of the mantissa.
      const uint32_t exponents = codes + bytes4(base_);
      const uint32_t high = (rest_bytes & bytes4(0x80)) | exponents << 2 | (rest_bytes >> 5 & bytes4(3));
      const uint32_t low = rest_bytes << 3 & bytes4(0xf8);
      return {{__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)}};
    } else {
      return window::heads_of<Type>(codes, base_, rest_bytes, rest_bits);
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

  __device__ void decode_escapes(uint32_t escaped, uint32_t lanes, char* staged) {
    if (!__any_sync(device::all_lanes, escaped != 0)) return;
    const uint32_t own = __popc(escaped), up_to = tile_.inclusive_scan(own);
    const uint32_t total = tile_.broadcast(up_to, tile_.lanes - 1);
    if (escapes_done_ + total > escapes_) {
      ok_ = false;
      escaped = 0;
    }
    uint32_t far = 0, number = escapes_done_ + up_to - own;
    for (; escaped != 0; escaped &= escaped - 1, ++number) {
      const uint32_t bit = __ffs(static_cast<int>(escaped)) - 1;
      const uint32_t token = load<uint8_t>(body_ + tokens_at_ + number / 2) >> (number % 2 * 4) & 15;
      if (token == window::far_token) {
        far |= 1u << bit;
      } else {
        const uint32_t above = token >= window::below_tokens ? escape_code() : 0;
        replace_exponent(bit, token == window::zero_token ? 0 : base_ - window::below_tokens + token + above, lanes,
                         staged);
      }
    }
    escapes_done_ += total;
    if (!__any_sync(device::all_lanes, far != 0)) return;
    const uint32_t own_far = __popc(far), far_up_to = tile_.inclusive_scan(own_far);
    const uint32_t total_far = tile_.broadcast(far_up_to, tile_.lanes - 1);
    if (far_at_ + (far_done_ + total_far) * Type.far_bytes() > available_) {
      ok_ = false;
      far = 0;
    }
    for (number = far_done_ + far_up_to - own_far; far != 0; far &= far - 1, ++number) {
      uint32_t exponent = load<uint8_t>(body_ + far_at_ + number * Type.far_bytes());
      if constexpr (Type.far_bytes() == 2) exponent |= load<uint8_t>(body_ + far_at_ + number * 2 + 1) << 8;
      replace_exponent(__ffs(static_cast<int>(far)) - 1, exponent, lanes, staged);
    }
    far_done_ += total_far;
  }

  __device__ void replace_exponent(uint32_t bit, uint32_t exponent, uint32_t lanes, char* staged) const {
    using Field = window::ExponentField<Type>;
    char* const head = staged + element(bit % 8 * 4 + bit / 8, lanes) * Type.value_bytes + Type.tail_bytes;
    const uint32_t before = *reinterpret_cast<const Head*>(head);
    store(head, static_cast<Head>(device::select_bits(Field::mask << Field::shift, exponent << Field::shift, before)));
  }

  // The elements after the last lane are stored whole.
  __device__ void copy_rest(uint32_t lanes, char* staged) const {
    for (uint32_t i = tile_.lane; i < elems_ % 32; i += tile_.lanes) {
      uint64_t value = 0;
      for (uint32_t byte = 0; byte < coded_bytes(); ++byte)
        value |= uint64_t{load<uint8_t>(body_ + rest_at_ + i * coded_bytes() + byte)} << 8 * byte;
      // Bits above those of the element are lost.
      reinterpret_cast<Staged*>(staged)[lanes * 32 + i] = static_cast<Staged>(value << low_bits_);
    }
  }

  const Tile& tile_;
  const char* body_;
  const char* group_ = nullptr;  // the sections of the current group
  uint32_t available_, elems_, tail_bytes_, low_bits_;
  uint32_t width_, base_, escapes_, lane_bytes_;
  uint32_t rest_at_, tokens_at_, far_at_;  // offsets in the body
  uint32_t escapes_done_ = 0, far_done_ = 0;
  bool ok_;
};

}  // namespace narrowcast::store::cuda
