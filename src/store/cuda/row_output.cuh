// Stores decoded rows, one for each tile of a warp, from shared memory to device memory. The L2 cache evicts them first
// (st.cs): it also has the page tables, which reads of large tables in host memory need.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/warp.cuh"
#include "bit_stream.cuh"
#include "gather_arguments.h"
#include "tile.cuh"

namespace narrowcast::store::cuda {

// Stores a part of a row to the output, or to shared memory.
template <bool is_output, typename T>
__device__ __forceinline__ void store_part(char* to, const T& value) {
  if constexpr (is_output)
    __stcs(reinterpret_cast<T*>(to), value);
  else
    *reinterpret_cast<T*>(to) = value;
}

// Stores `bytes` zeros. `to` may have any alignment.
__device__ inline void store_zeros(const Tile& tile, char* to, uint32_t bytes) {
  const uint32_t head = min(-static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) % 16, bytes);
  const uint32_t vectors = (bytes - head) / 16, tail = head + vectors * 16;
  for (uint32_t i = tile.lane; i < head; i += tile.lanes) __stcs(to + i, char{0});
  auto* vector = reinterpret_cast<uint4*>(to + head) + tile.lane;
  uint32_t i = tile.lane;
  constexpr uint32_t ahead = 4;
  for (; i + (ahead - 1) * tile.lanes < vectors; i += ahead * tile.lanes) {
#pragma unroll
    for (uint32_t k = 0; k < ahead; ++k, vector += tile.lanes) __stcs(vector, uint4{0, 0, 0, 0});
  }
  for (; i < vectors; i += tile.lanes, vector += tile.lanes) __stcs(vector, uint4{0, 0, 0, 0});
  for (uint32_t i = tail + tile.lane; i < bytes; i += tile.lanes) __stcs(to + i, char{0});
}

// Copies `count` words. Loads several before the first store, because the compiler does not move loads across stores.
template <typename Word, typename Load>
__device__ __forceinline__ void store_words(const Tile& tile, char* to, uint32_t count, Load load) {
  constexpr uint32_t ahead = 4;
  for (uint32_t first = tile.lane; first < count; first += ahead * tile.lanes) {
    Word words[ahead];
#pragma unroll
    for (uint32_t i = 0; i < ahead; ++i)
      if (first + i * tile.lanes < count) words[i] = load(first + i * tile.lanes);
#pragma unroll
    for (uint32_t i = 0; i < ahead; ++i)
      if (first + i * tile.lanes < count) __stcs(reinterpret_cast<Word*>(to) + first + i * tile.lanes, words[i]);
  }
}

// Copies `bytes` bytes of shared memory in units of unit_bytes, a power of two up to 16: `to` and `bytes` are multiples
// of it in every row. `from` is aligned to min(unit_bytes, 4) in every row.
__device__ __forceinline__ void copy_row(const Tile& tile, char* to, const char* from, uint32_t bytes,
                                         uint32_t unit_bytes) {
  const auto copy = [&]<typename Word>(Word) {
    store_words<Word>(tile, to, bytes / sizeof(Word),
                      [&](uint32_t i) { return reinterpret_cast<const Word*>(from)[i]; });
  };
  const bool aligned = __all_sync(device::all_lanes, reinterpret_cast<uintptr_t>(from) % 16 == 0);
  if (unit_bytes == 16 && aligned) {
    copy(uint4{});
  } else if (unit_bytes == 16) {
    store_words<uint4>(tile, to, bytes / 16, [&](uint32_t i) {
      const auto* words = reinterpret_cast<const uint32_t*>(from) + 4 * i;
      return uint4{words[0], words[1], words[2], words[3]};
    });
  } else if (unit_bytes >= 4) {
    copy(uint32_t{});
  } else if (unit_bytes == 2) {
    copy(uint16_t{});
  } else {
    copy(uint8_t{});
  }
}

// The stages in front of the coder, undone while elements are stored: `trim` restores constant bits, `zeros` puts the
// elements where the zero map has ones. Used if a model has either.
class Stages {
 public:
  // payload: empty in tiles without a row. map_bit: where the zero map begins; unused without the stage `zeros`.
  __device__ Stages(const RowFormat& format, const Tile& tile, const BitStream& payload, uint32_t map_bit)
      : format_(format), tile_(tile), payload_(payload), map_bit_(map_bit) {}

  // The number of ones in the zero map.
  __device__ uint32_t count() const {
    uint32_t ones = 0;
    for (uint32_t word = tile_.lane; word < words(); word += tile_.lanes) ones += __popc(bits_of(word));
    return tile_.sum(ones);
  }

  // Stores elements [first, first + count) of those that reached the coder; `staged` holds them, or is NULL if the trim
  // has left no bits of them. count is 0 in tiles without a row. Pieces follow each other in order, and with `zeros`
  // the row has been filled with zeros.
  template <typename Staged>
  __device__ void store(char* row, const char* staged, uint32_t first, uint32_t count) {
    const auto* from = reinterpret_cast<const Staged*>(staged);
    auto* const to = reinterpret_cast<Staged*>(row);
    const auto whole = [&](uint32_t index) {
      const Staged part = from == nullptr ? Staged{0} : static_cast<Staged>(from[index] << format_.shift);
      return static_cast<Staged>(part | static_cast<Staged>(format_.fill));
    };
    if (!format_.has_zeros) {
      for (uint32_t i = tile_.lane; i < count; i += tile_.lanes) __stcs(to + first + i, whole(i));
      return;
    }
    // Each lane takes one word of the map at a time. All tiles iterate as often as the one that takes longest.
    bool open = count != 0;
    while (true) {
      open = open && word_ < words() && before_ < first + count;
      if (!__any_sync(device::all_lanes, open)) return;
      const uint32_t word = word_ + tile_.lane;
      uint32_t bits = open && word < words() ? bits_of(word) : 0;
      const uint32_t own = __popc(bits), up_to = tile_.inclusive_scan(own);
      const uint32_t total = tile_.broadcast(up_to, tile_.lanes - 1);
      uint32_t index = before_ + up_to - own - first;  // in the piece; wraps around before it
      for (; bits != 0; bits &= bits - 1, ++index)
        if (index < count) __stcs(to + word * 32 + __ffs(static_cast<int>(bits)) - 1, whole(index));
      if (!open) continue;
      if (before_ + total > first + count) {
        open = false;  // the next piece continues with these words
      } else {
        before_ += total;
        word_ += tile_.lanes;
      }
    }
  }

 private:
  __device__ uint32_t words() const { return (format_.elems + 31) / 32; }
  __device__ uint32_t bits_of(uint32_t word) const {
    const uint32_t bits = payload_.read_word(map_bit_ + word * 32), rest = format_.elems % 32;
    return word == format_.elems / 32 ? bits & ((1u << rest) - 1) : bits;
  }

  const RowFormat& format_;
  const Tile& tile_;
  BitStream payload_;
  uint32_t map_bit_;
  uint32_t word_ = 0, before_ = 0;  // the next word, and the ones before it
};

}  // namespace narrowcast::store::cuda
