// Stores decoded rows, one for each tile of a warp, from shared memory to device memory. The L2 cache evicts them first
// (st.cs): it also has the page tables, which reads of large tables in host memory need.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../device/warp.cuh"
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

// Stores a row of at most 64 bytes for each lane of a warp, in units of 16 bytes. Four lanes store a row together: a
// store of less than a sector of 32 bytes takes as long as that of four. bytes_of(row): 0 if it does not exist.
// to_of(row): in the output. part_of(row, part, exists): 16 bytes of shared memory. All lanes call these functions.
template <typename BytesOf, typename ToOf, typename PartOf>
__device__ __forceinline__ void store_short_rows(int lane, BytesOf bytes_of, ToOf to_of, PartOf part_of) {
  constexpr int lanes = 4, vector_bytes = 16;
  const int part = lane % lanes;
  char* its_to[lanes];
  uint4 vectors[lanes];
  bool has_part[lanes];
#pragma unroll
  for (int i = 0; i < lanes; ++i) {
    const int row = i * (32 / lanes) + lane / lanes;
    has_part[i] = static_cast<uint32_t>(part * vector_bytes) < bytes_of(row);
    its_to[i] = to_of(row) + part * vector_bytes;
    vectors[i] = part_of(row, part, has_part[i]);
  }
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    if (has_part[i]) __stcs(reinterpret_cast<uint4*>(its_to[i]), vectors[i]);
}

// Stores `count` elements of a row, of which the trim has removed the constant bits. `staged` has the others, or is
// NULL if there are none.
template <typename Staged>
__device__ inline void store_untrimmed(const Tile& tile, const RowFormat& format, char* to, const char* staged,
                                       uint32_t count) {
  const auto* const from = reinterpret_cast<const Staged*>(staged);
  for (uint32_t i = tile.lane; i < count; i += tile.lanes) {
    const Staged part = from == nullptr ? Staged{0} : static_cast<Staged>(from[i] << format.shift);
    __stcs(reinterpret_cast<Staged*>(to) + i, static_cast<Staged>(part | static_cast<Staged>(format.fill)));
  }
}

}  // namespace narrowcast::store::cuda
