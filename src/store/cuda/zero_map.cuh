// Undoes the stage `zeros`, and a trim before it: the tiles of a warp store one row each, zeros and elements together,
// in whole vectors of 16 bytes.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "bit_stream.cuh"
#include "gather_arguments.h"
#include "tile.cuh"

namespace narrowcast::store::cuda {

class ZeroMap {
 public:
  // payload: empty in tiles without a row. map_bit: where the zero map begins in it.
  __device__ ZeroMap(const RowFormat& format, const Tile& tile, const BitStream& payload, uint32_t map_bit)
      : format_(format), tile_(tile), payload_(payload), map_bit_(map_bit) {}

  // The number of ones.
  __device__ uint32_t count() const {
    uint32_t ones = 0;
    for (uint32_t first = tile_.lane * 32; first < format_.elems; first += tile_.lanes * 32)
      ones += __popc(payload_.read_word(map_bit_ + first) & mask_of(format_.elems - first));
    return tile_.sum(ones);
  }

  // Stores rows whose elements are either 0 or the fill. Nothing in tiles where `exists` is false; in the others the
  // map is inside the payload.
  template <typename Staged>
  __device__ void store_fill(char* row, bool exists) const {
    if (!exists) return;
    if (tile_.lanes == fill_lanes)
      store_lines<Staged, fill_lanes>(row, fill_lanes);
    else
      store_lines<Staged, 0>(row, tile_.lanes);
  }

  // Stores a piece of a row: the elements that follow at least `first` and fewer than first + count ones. `staged` has
  // the next `count` elements that reached the coder. Pieces follow each other in order. is_last: all elements from
  // `first` on. exists: false in tiles without a row. Not inline, because the kernels have no registers left for it.
  template <typename Staged>
  __device__ __noinline__ void store(char* row, const char* staged, uint32_t first, uint32_t count, bool is_last,
                                     bool exists) {
    constexpr uint32_t size = vector_elems<Staged>;
    const auto* const from = reinterpret_cast<const Staged*>(staged);
    auto* const to = reinterpret_cast<Staged*>(row);
    const uint32_t skew = first_in_vector<Staged>(row), vectors = (format_.elems + skew + size - 1) / size;
    const uint32_t limit = is_last ? ~0u : first + count;
    const auto element = [&](bool is_one, uint32_t index) {
      if (!is_one) return Staged{0};
      return static_cast<Staged>(static_cast<Staged>(from[index] << format_.shift) | static_cast<Staged>(format_.fill));
    };
    // Each lane takes one vector at a time. All tiles iterate as often as the one that takes longest.
    bool open = exists;
    while (true) {
      open = open && vector_ < vectors && before_ < limit;
      if (!__any_sync(device::all_lanes, open)) return;
      const uint32_t vector = vector_ + tile_.lane, begin = vector * size - skew;  // wraps around before the row
      const bool has_vector = open && vector < vectors;
      const uint32_t bits = has_vector ? bits_from(begin, skew) & ((1u << size) - 1) : 0;
      const uint32_t own = __popc(bits), up_to = tile_.inclusive_scan(own);
      const uint32_t total = tile_.broadcast(up_to, tile_.lanes - 1);
      uint32_t rank = before_ + up_to - own;
      if (has_vector && begin < format_.elems && begin + size <= format_.elems && rank >= first && rank + own < limit) {
        uint32_t index = rank - first;
        __stcs(reinterpret_cast<uint4*>(to + begin), pack<Staged>([&](uint32_t e) {
                 const bool is_one = (bits >> e & 1) != 0;
                 const Staged value = element(is_one, index);
                 index += is_one ? 1 : 0;
                 return value;
               }));
      } else if (has_vector) {
        for (uint32_t e = 0; e < size; ++e) {
          const bool is_one = (bits >> e & 1) != 0;
          if (begin + e < format_.elems && rank >= first && rank < limit)
            __stcs(to + (begin + e), element(is_one, rank - first));
          rank += is_one ? 1 : 0;
        }
      }
      if (!open) continue;
      if (total >= limit - before_) {
        open = false;  // the next piece begins with the same vectors
      } else {
        before_ += total;
        vector_ += tile_.lanes;
      }
    }
  }

 private:
  template <typename Staged>
  static constexpr uint32_t vector_elems = 16 / sizeof(Staged);
  // Elements of the vector that the row begins in before the row.
  template <typename Staged>
  __device__ static uint32_t first_in_vector(const char* row) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(Staged));
  }
  // The lowest bits, at most 32.
  __device__ static uint32_t mask_of(uint32_t bits) { return bits >= 32 ? ~0u : (1u << bits) - 1; }

  // The map from element `begin` on: zeros before the row and after it. begin: -skew or more.
  __device__ uint32_t bits_from(uint32_t begin, uint32_t skew) const {
    const bool is_before = begin >= format_.elems;
    const uint32_t bits = payload_.read_word(map_bit_ + (is_before ? 0 : begin));
    const uint32_t known = bits & mask_of(format_.elems - (is_before ? 0 : begin));
    return is_before ? known << skew : known;
  }
  // Stores the elements of a row that are in the vector whose first element is `first`, which wraps around before the
  // row. They are 0 or the fill.
  template <typename Staged>
  __device__ void store_vector(Staged* row, uint32_t first, Staged fill) const {
    constexpr uint32_t size = vector_elems<Staged>;
    if (first < format_.elems && first + size <= format_.elems) {
      __stcs(reinterpret_cast<uint4*>(row + first), fills<Staged>(payload_.read_word_inside(map_bit_ + first), fill));
      return;
    }
    for (uint32_t i = first; i != first + size; ++i)
      if (i < format_.elems) __stcs(row + i, payload_.read_bit(map_bit_ + i) != 0 ? fill : Staged{0});
  }
  // Stores a row whose elements are 0 or the fill. The lanes of a tile store parts of one line, or several whole ones.
  // lanes: of the tile, which the compiler knows if Lanes is not 0.
  template <typename Staged, uint32_t Lanes>
  __device__ void store_lines(char* row, uint32_t lanes) const {
    constexpr uint32_t size = vector_elems<Staged>, ahead = 4;
    const uint32_t apart = (Lanes != 0 ? Lanes : lanes) * size;
    const auto fill = static_cast<Staged>(format_.fill);
    const uint32_t line = min((Lanes != 0 ? Lanes : lanes) * 16, line_bytes);
    const auto skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) % line / sizeof(Staged));
    uint32_t left = (format_.elems + skew - 1) / apart;  // vectors of this lane after the first one
    uint32_t first = tile_.lane * size - skew;
    auto* const to = reinterpret_cast<Staged*>(row);
    store_vector(to, first, fill);
    // Those between the first and the last line are complete. Loads come before stores, across which the compiler does
    // not move them.
    for (; left > ahead; left -= ahead) {
      uint32_t bits[ahead];
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k) bits[k] = payload_.read_word_inside(map_bit_ + first + apart, k * apart);
#pragma unroll
      for (uint32_t k = 0; k < ahead; ++k)
        __stcs(reinterpret_cast<uint4*>(to + (first + apart)) + k * apart / size, fills<Staged>(bits[k], fill));
      first += ahead * apart;
    }
#pragma unroll 1
    for (; left != 0; --left) store_vector(to, first += apart, fill);
  }
  // A vector that has the fill where `bits` has ones.
  template <typename Staged>
  __device__ static uint4 fills(uint32_t bits, Staged fill) {
    constexpr uint32_t size = sizeof(Staged);
    uint32_t words[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t first = i * 4 / size;  // element of the word
      // Moves four bits to the signs of four bytes, with which whole bytes are filled.
      const uint32_t signs = (bits >> first / 4 * 4 & 0xf) * 0x10204080u;
      uint32_t selector = 0;
#pragma unroll
      for (uint32_t byte = 0; byte < 4; ++byte) selector |= (8 | (first % 4 + byte / size)) << 4 * byte;
      const auto part = size == 8   ? static_cast<uint32_t>(uint64_t{fill} >> i % 2 * 32)
                        : size == 4 ? static_cast<uint32_t>(fill)
                        : size == 2 ? device::halves2(static_cast<uint32_t>(fill))
                                    : device::bytes4(static_cast<uint32_t>(fill));
      words[i] = device::permute_bytes(signs, signs, selector) & part;
    }
    return {words[0], words[1], words[2], words[3]};
  }
  // A vector of the elements element(0), element(1)...
  template <typename Staged, typename Element>
  __device__ static uint4 pack(Element element) {
    constexpr uint32_t in_word = sizeof(Staged) < 4 ? 4 / sizeof(Staged) : 1;
    uint32_t words[4];
    if constexpr (sizeof(Staged) == 8) {
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint64_t value = element(i);
        words[2 * i] = static_cast<uint32_t>(value);
        words[2 * i + 1] = static_cast<uint32_t>(value >> 32);
      }
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        words[i] = 0;
#pragma unroll
        for (uint32_t e = 0; e < in_word; ++e)
          words[i] |= static_cast<uint32_t>(element(i * in_word + e)) << e * 8 * sizeof(Staged) % 32;
      }
    }
    return {words[0], words[1], words[2], words[3]};
  }

  const RowFormat& format_;
  Tile tile_;  // a copy: references would keep the original in memory
  BitStream payload_;
  uint32_t map_bit_;
  uint32_t vector_ = 0, before_ = 0;  // the next vector, and the ones before it
};

}  // namespace narrowcast::store::cuda
