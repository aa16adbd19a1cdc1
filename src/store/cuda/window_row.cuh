// The coder `window` of rows (docs/format/rows.md): the tiles of a warp decode one row each from shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../codec/window/packing.cuh"
#include "../../device/warp.cuh"
#include "../rows/window_layout.h"
#include "gather_arguments.h"
#include "row_output.cuh"
#include "team.cuh"
#include "tile.cuh"
#include "window_escapes.cuh"
#include "window_parts.cuh"

namespace narrowcast::store::cuda {

// Decodes to elements of the size they had before the trim, whose trimmed bits are 0. Type: of the elements; the tails
// of float64 may be shortened by a trim.
template <window::ValueType Type, typename TeamType = Alone>
class WindowRow {
  static constexpr int words = window::group_words, vector_elems = Type.vector_elems();

 public:
  using Staged = std::conditional_t<Type.value_bytes == 1, uint8_t,
                                    std::conditional_t<Type.value_bytes == 2, uint16_t,
                                                       std::conditional_t<Type.value_bytes == 4, uint32_t, uint64_t>>>;
  using Team = TeamType;
  static constexpr bool has_header = true;
  static constexpr uint32_t map_bit = 8 * header_bytes;
  static constexpr uint32_t piece_elems = window::group_elems;

  __device__ WindowRow(const Tile& tile, Team& team, const RowFormat&, const CoderFormat& coder, uint32_t header,
                       const char* payload, uint32_t payload_bytes, uint32_t before_body, uint32_t elems, char* scratch)
      : tile_(tile), team_(team), coder_(coder), list_(scratch + tile.number * tile.lanes * 32) {
    body_ = payload + before_body;
    available_ = payload_bytes - min(payload_bytes, before_body);
    last_word_ = max(available_, 4u) - 4;
    width_ = header >> row_width_shift & row_width_mask;
    base_ = header >> row_base_shift & row_base_mask;
    escapes_ = header >> row_escapes_shift;
    rest_at_ = elems / 32 * lane_bytes();
    tokens_at_ = rest_at_ + elems % 32 * coded_bytes();
    // No branches: every row takes this path.
    ok_ = static_cast<int>(payload_bytes >= before_body) & static_cast<int>(width_ - 1 < Type.max_width()) &
          static_cast<int>(base_ + (1u << width_) <= 1u << Type.exponent_bits) &
          static_cast<int>(far_at() <= available_);
    elems_ = ok_ ? elems : 0;
    lanes_ = elems_ / 32;
  }
  __device__ uint32_t elems() const { return elems_; }

  // Decodes the elements of group `piece` to `to`: to the output, or to shared memory.
  template <bool is_output>
  __device__ void decode(uint32_t piece, char* to) {
    const uint32_t lanes = min(lanes_ - min(lanes_, piece * 32), 32u);
    decode_lanes<is_output, false>(piece, lanes, tile_.lane < lanes, to);
    if (elems_ % 32 != 0 && piece == elems_ / window::group_elems) copy_rest<is_output>(lanes, to);
  }
  // Addresses are constant distances apart. Not for other types, whose kernels would need more registers.
  template <uint32_t lanes, bool is_output>
    requires(Type.value_bytes == 2 || Type.value_bytes == 4)
  __device__ void decode_whole(uint32_t piece, char* to) {
    decode_lanes<is_output, (lanes < 32)>(piece, lanes, ok_, to);
  }
  __device__ static bool has_bits(const CoderFormat&) { return true; }
  __device__ bool ok() const { return ok_ && escapes_done_ == escapes_; }

 private:
  // Decodes the elements of `lanes` lanes of group `piece`. is_whole: it is the row.
  template <bool is_output, bool is_whole>
  __device__ __forceinline__ void decode_lanes(uint32_t piece, uint32_t lanes, bool has_elems, char* to) {
    const char* const group = body_ + piece * 32 * lane_bytes();
    const uint32_t rest_bits_at = (tail_bytes() + Type.rest_bytes) * 32 * lanes;
    uint32_t codes[words];
    const char* const at = group + (rest_bits_at + Type.rest_bits * 4 * lanes + tile_.lane * 4);
    switch (has_elems ? width_ : 0) {
      case 0: clear(codes); break;
      case 1: unpack_from<1>(codes, at, lanes * 4); break;
      case 2: unpack_from<2>(codes, at, lanes * 4); break;
      case 3: unpack_from<3>(codes, at, lanes * 4); break;
      case 4: unpack_from<4>(codes, at, lanes * 4); break;
      default: unpack_from<5>(codes, at, lanes * 4); break;
    }
    Exponents exponents;
    replace_codes<is_whole>(codes, exponents);
    if (!has_elems) return;
    // Not before, because registers are scarce until then.
    uint32_t rest_bits[words] = {};
    if constexpr (Type.rest_bits != 0)
      unpack_from<Type.rest_bits>(rest_bits, group + (rest_bits_at + device::opaque(tile_.lane) * 4), lanes * 4);
    join_parts<is_output>(group, lanes, exponents, rest_bits, to);
  }

  // The exponents of a lane's 32 elements: four in each word, one byte each, or two if they do not fit into bytes.
  static constexpr uint32_t exponents_in_word = exponents_in_word_of<Type>;
  using Exponents = uint32_t[32 / exponents_in_word];
  static constexpr int planes = Tokens<Type>::planes;
  static constexpr uint32_t plane_bytes = window::group_elems;
  static constexpr uint32_t exponent_mask = (1u << Type.exponent_bits) - 1;

  template <typename T>
  __device__ static void store(char* to, const T& value) {
    *reinterpret_cast<T*>(to) = value;
  }
  __device__ uint32_t tail_bytes() const { return Type.value_bytes == 8 ? coder_.tail_bytes : Type.tail_bytes; }
  // Of an element that is stored whole.
  __device__ uint32_t coded_bytes() const { return (Type.value_bytes == 1 ? 1 : 2) + tail_bytes(); }
  __device__ uint32_t lane_bytes() const {
    return 32 * (tail_bytes() + Type.rest_bytes) + 4 * (Type.rest_bits + width_);
  }
  __device__ uint32_t far_at() const { return tokens_at_ + (escapes_ + 1) / 2; }
  __device__ uint32_t escape_code() const { return (1u << width_) - 1; }

  __device__ static void clear(uint32_t (&fields)[words]) {
#pragma unroll
    for (int word = 0; word < words; ++word) fields[word] = 0;
  }
  template <int Width>
  __device__ static void unpack_from(uint32_t (&fields)[words], const char* at, uint32_t row_bytes) {
    uint32_t packed[Width];
#pragma unroll
    for (int row = 0; row < Width; ++row, at += row_bytes) packed[row] = load_as<uint32_t>(at);
    window::unpack<Width>(packed, fields);
  }

  // Turns the codes of this lane's elements into exponents. All lanes of the warp call it. is_whole: of all of the row.
  template <bool is_whole>
  __device__ void replace_codes(const uint32_t (&codes)[words], Exponents& exponents) {
    const LaneEscapes escapes(codes, escape_code());
#pragma unroll
    for (int word = 0; word < words; ++word) {
      if constexpr (planes == 1) {
        exponents[word] = codes[word] + device::bytes4(base_);
      } else {
        exponents[2 * word] = __byte_perm(codes[word], 0, 0x4140) + device::halves2(base_);
        exponents[2 * word + 1] = __byte_perm(codes[word], 0, 0x4342) + device::halves2(base_);
      }
    }
    const uint32_t own = escapes.count(), up_to = tile_.template inclusive_scan<Team::tile_lanes>(own);
    // The escapes of the tile, and those of the row before them.
    uint32_t total = 0, begin = 0;
    if constexpr (is_whole) {
      // The last lane compares for all of them.
      ok_ = ok_ && (tile_.lane != tile_.lanes - 1 || up_to == escapes_);
      escapes_done_ = escapes_;
    } else {
      total = tile_.broadcast(up_to, tile_.lanes - 1);
      begin = begin_of_piece(total);
    }
    const uint32_t at = begin + up_to - own;
    const Tokens<Type> to(base_, escape_code());
    if constexpr (planes == 1) {
      const auto replace = [&](int word, uint32_t bytes) {
        exponents[word] = device::select_bits(escapes.mask(word), bytes, exponents[word]);
      };
      EightBytes columns[4];
      uint32_t rare = to.are_rare();
      const auto load_column = [&](int column) {
        columns[column] = to.eight_exponents(tokens_from(at + escapes.before_column(column)), &rare);
      };
      load_column(0);
      if (!__any_sync(device::all_lanes, rare != 0 || own > 8)) {
        escapes.for_each_word(columns[0], replace);
        return;
      }
      load_column(2);
      if (!__any_sync(device::all_lanes, rare != 0 || !escapes.few())) {
        escapes.for_each_word(columns[0], columns[2], replace);
        return;
      }
      load_column(1);
      load_column(3);
      if (!__any_sync(device::all_lanes, rare != 0)) {
        escapes.for_each_word(columns, replace);
        return;
      }
    }
    if constexpr (is_whole) total = tile_.broadcast(up_to, tile_.lanes - 1);
    list_exponents(to, begin, ok_ ? total : 0);
    replace_exponents(escapes, at - begin, exponents);
    __syncwarp();  // the list is in the memory of staged elements
  }

  // total: escapes of the tile in this piece. Returns the number of those in the pieces before.
  __device__ uint32_t begin_of_piece(uint32_t total) {
    uint32_t begin = escapes_done_;
    if constexpr (Team::is_alone) {
      escapes_done_ += total;
    } else {
      const auto sums = team_.sum(total);
      begin += sums.before;
      escapes_done_ += sums.total;
    }
    if (begin + total > escapes_) ok_ = false;
    return begin;
  }

  // Lists the exponents of tokens [begin, begin + total).
  __device__ void list_exponents(const Tokens<Type>& to, uint32_t begin, uint32_t total) {
    uint32_t far = 0;
    for (uint32_t first = tile_.lane * 8; first < total; first += tile_.lanes * 8) {
      const uint32_t tokens = tokens_from(begin + first);
      far |= far_nibbles(tokens);
      // Even and odd ones, put in order.
      const uint32_t even = tokens & device::bytes4(0xf), odd = tokens >> 4 & device::bytes4(0xf);
      uint32_t low[planes], high[planes];
      to.to_exponents(__byte_perm(even, odd, 0x5140), low);
      to.to_exponents(__byte_perm(even, odd, 0x7362), high);
#pragma unroll
      for (int plane = 0; plane < planes; ++plane)
        store(list_ + plane * plane_bytes + first, uint2{low[plane], high[plane]});
    }
    __syncwarp();
    if (__any_sync(device::all_lanes, far != 0)) list_far_exponents(begin, total);
  }
  // Tokens first, first + 1, ..., first + 7 of the row, and anything after the last one.
  __device__ uint32_t tokens_from(uint32_t first) const {
    const uint32_t bit = tokens_at_ * 8 + first * 4;
    // Shared memory goes on after every payload.
    const char* const at = body_ + min(bit / 32 * 4, last_word_);
    return __funnelshift_r(load_as<uint32_t>(at), load_as<uint32_t>(at + 4), bit);
  }
  // The far ones of tokens first, ..., first + 7 that come before token `end`, as bits 4 i.
  __device__ uint32_t far_tokens(uint32_t first, uint32_t end) const {
    if (first >= end) return 0;
    const uint32_t far = far_nibbles(tokens_from(first));
    return end - first < 8 ? far & ((1u << 4 * (end - first)) - 1) : far;
  }
  // For the `total` tokens from `begin` on.
  __device__ void list_far_exponents(uint32_t begin, uint32_t total) {
    const uint32_t step = tile_.lanes * 8;
    uint32_t before = 0;  // far tokens before this lane's
#pragma unroll 1
    for (uint32_t first = tile_.lane * 8; first < begin; first += step) before += __popc(far_tokens(first, begin));
    before = tile_.sum(before);
    const uint32_t most = __reduce_max_sync(device::all_lanes, total);
#pragma unroll 1
    for (uint32_t done = 0; done < most; done += step) {
      const uint32_t first = done + tile_.lane * 8;
      uint32_t far = far_tokens(begin + first, begin + total);
      const uint32_t own = __popc(far), up_to = tile_.inclusive_scan(own);
      const uint32_t found = tile_.broadcast(up_to, tile_.lanes - 1);
      if (far_at() + (before + found) * Type.far_bytes() > available_) {
        ok_ = false;
        far = 0;
      }
#pragma unroll 1
      for (uint32_t number = before + up_to - own; far != 0; far &= far - 1, ++number) {
        const uint32_t at = first + (__ffs(static_cast<int>(far)) - 1) / 4;
#pragma unroll
        for (int plane = 0; plane < planes; ++plane) {
          const uint32_t exponent = load_as<uint8_t>(body_ + far_at() + number * planes + plane);
          store(list_ + plane * plane_bytes + at, static_cast<uint8_t>(exponent & exponent_mask >> 8 * plane));
        }
      }
      before += found;
    }
    __syncwarp();
  }
  // The exponents of this lane's escapes, which begin at `at` in the list.
  __device__ void replace_exponents(const LaneEscapes& escapes, uint32_t at, Exponents& exponents) const {
    const auto columns_of = [&](int plane, EightBytes(&columns)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) columns[i] = listed_bytes(list_ + plane * plane_bytes, at + escapes.before_column(i));
    };
    EightBytes columns[4];
    columns_of(0, columns);
    if constexpr (planes == 1) {
      escapes.for_each_word(columns, [&](int word, uint32_t bytes) {
        exponents[word] = device::select_bits(escapes.mask(word), bytes, exponents[word]);
      });
    } else {
      uint32_t low[words];
      escapes.for_each_word(columns, [&](int word, uint32_t bytes) { low[word] = bytes; });
      columns_of(1, columns);
      escapes.for_each_word(columns, [&](int word, uint32_t bytes) {
        const uint32_t mask = escapes.mask(word);
        uint32_t& first = exponents[2 * word];
        uint32_t& second = exponents[2 * word + 1];
        first = device::select_bits(__byte_perm(mask, 0, 0x1100), __byte_perm(low[word], bytes, 0x5140), first);
        second = device::select_bits(__byte_perm(mask, 0, 0x3322), __byte_perm(low[word], bytes, 0x7362), second);
      });
    }
  }

  // Joins the exponents of this lane's elements with the rest and the tails. Element j of the lane is element
  // (j / vector_elems * lanes + lane) * vector_elems + j % vector_elems of the group.
  template <bool is_output>
  __device__ void join_parts(const char* group, uint32_t lanes, const Exponents& exponents,
                             const uint32_t (&rest_bits)[words], char* to) const {
    const uint32_t step = lanes * vector_elems;  // elements between two vectors of a lane
    const char* tail_at = group + tile_.lane * vector_elems * tail_bytes();
    const char* rest_at = group + tail_bytes() * 32 * lanes + tile_.lane * vector_elems;
    char* place = to + tile_.lane * window::vector_bytes;
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
          if constexpr (Type.rest_bytes != 0) {
            rests[i] = load_as<uint32_t>(rest_at + 4 * i % vector_elems);
            if ((4 * i + 4) % vector_elems == 0) rest_at += step;
          }
          if constexpr (Type.value_bytes == 4) {
            tails[i] = tails_of_four<Type>(tail_at);
            tail_at += step * Type.tail_bytes;
          }
        }
      }
      const window::Heads heads = heads_of_word<Type>(exponents, word, rests[word % ahead], rest_bits[word]);
      if constexpr (Type.value_bytes == 1) {
        (word % 4 == 0 ? vector.x : word % 4 == 1 ? vector.y : word % 4 == 2 ? vector.z : vector.w) = heads.pair[0];
        if (word % 4 != 3) continue;
      } else if constexpr (Type.value_bytes == 2) {
        (word % 2 == 0 ? vector.x : vector.z) = heads.pair[0];
        (word % 2 == 0 ? vector.y : vector.w) = heads.pair[1];
        if (word % 2 != 1) continue;
      } else if constexpr (Type.value_bytes == 4) {
        const uint2 two = tails[word % ahead];
        vector = {__byte_perm(two.x, heads.pair[0], 0x5410), __byte_perm(two.x, heads.pair[0], 0x7632),
                  __byte_perm(two.y, heads.pair[1], 0x5410), __byte_perm(two.y, heads.pair[1], 0x7632)};
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint64_t low = tail_of(tail_at, 0, tail_bytes()), high = tail_of(tail_at, 1, tail_bytes());
          const uint32_t pair = heads.pair[half];
          store_part<is_output>(
              place, uint4{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32) | pair << 16,
                           static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32) | (pair & 0xffff0000)});
          tail_at += step * tail_bytes();
          place += step * Type.value_bytes;
        }
        continue;
      }
      store_part<is_output>(place, vector);
      place += step * Type.value_bytes;
    }
  }

  // The elements after the last lane are stored whole.
  template <bool is_output>
  __device__ void copy_rest(uint32_t lanes, char* to) const {
    for (uint32_t i = tile_.lane; i < elems_ % 32; i += tile_.lanes) {
      uint64_t value = 0;
      for (uint32_t byte = 0; byte < coded_bytes(); ++byte)
        value |= uint64_t{load_as<uint8_t>(body_ + rest_at_ + i * coded_bytes() + byte)} << 8 * byte;
      // Bits above those of the element are lost.
      store_part<is_output>(to + (lanes * 32 + i) * sizeof(Staged), static_cast<Staged>(value << coder_.low_bits));
    }
  }

  const Tile& tile_;
  Team& team_;
  const CoderFormat& coder_;
  char* list_;  // of exponents, in shared memory: one plane after the other
  const char* body_;
  uint32_t available_, last_word_, elems_, lanes_, width_, base_, escapes_;
  uint32_t rest_at_, tokens_at_;  // offsets in the body
  uint32_t escapes_done_ = 0;     // by the team
  bool ok_;
};

}  // namespace narrowcast::store::cuda
