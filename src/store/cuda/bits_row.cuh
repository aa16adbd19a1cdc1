// The coders `plain` and `invariant` of rows (docs/format/rows.md): the tiles of a warp decode one row each from shared
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../device/warp.cuh"
#include "../rows/format.h"
#include "bit_stream.cuh"
#include "gather_arguments.h"
#include "row_output.cuh"
#include "team.cuh"
#include "tile.cuh"

namespace narrowcast::store::cuda {

template <typename Elem>
class PlainRow {
 public:
  using Staged = Elem;
  using Team = Alone;
  static constexpr bool has_header = true;
  static constexpr uint32_t map_bit = first_coder_bit;
  static constexpr uint32_t piece_elems = 1024;

  __device__ PlainRow(const Tile& tile, const Team&, const RowFormat& row, const CoderFormat& coder, uint32_t,
                      const char* payload, uint32_t payload_bytes, uint32_t, uint32_t elems, char*)
      : tile_(tile),
        stream_(payload, payload_bytes),
        first_bit_(map_bit + (row.has_zeros ? row.elems : 0)),
        part_bits_(coder.part_bits) {
    ok_ = payload_bytes == 0 || (first_bit_ + uint64_t{elems} * part_bits_ + 31) / 32 * 4 <= payload_bytes;
    elems_ = ok_ ? elems : 0;
  }
  __device__ uint32_t elems() const { return elems_; }

  template <bool is_output>
  __device__ void decode(uint32_t piece, char* to) {
    const uint32_t first = piece * piece_elems;
    for (uint32_t i = tile_.lane; i < piece_elems && first + i < elems_; i += tile_.lanes)
      store_part<is_output>(to + i * sizeof(Elem),
                            static_cast<Elem>(stream_.read(first_bit_ + (first + i) * part_bits_, part_bits_)));
  }
  __device__ static bool has_bits(const CoderFormat& coder) { return coder.part_bits != 0; }
  __device__ bool ok() const { return ok_; }

 private:
  const Tile& tile_;
  BitStream stream_;
  uint32_t first_bit_, part_bits_, elems_;
  bool ok_;
};

// The elements are the chunks.
template <typename Chunk>
class InvariantRow {
  static constexpr uint32_t chunk_bits = 8 * sizeof(Chunk);

 public:
  using Staged = Chunk;
  using Team = Alone;
  static constexpr bool has_header = true;
  static constexpr uint32_t map_bit = 0;  // there is no zero map
  static constexpr uint32_t piece_elems = 1024;

  __device__ InvariantRow(const Tile& tile, const Team&, const RowFormat& row, const CoderFormat& coder, uint32_t,
                          const char* payload, uint32_t payload_bytes, uint32_t, uint32_t elems, char*)
      : tile_(tile), stream_(payload, payload_bytes), payload_bits_(payload_bytes * 8) {
    const auto cluster = static_cast<uint32_t>(stream_.read(first_coder_bit, coder.cluster_bits));
    first_bit_ = first_coder_bit + coder.cluster_bits;
    next_bit_ = first_bit_ + row.elems;
    ok_ = payload_bytes == 0 || (cluster < coder.clusters && next_bit_ <= payload_bits_);
    elems_ = ok_ ? elems : 0;
    const size_t offset = ok_ ? size_t{cluster} * row.elems : 0;
    masks_ = static_cast<const Chunk*>(coder.masks) + offset;
    values_ = static_cast<const Chunk*>(coder.values) + offset;
  }
  __device__ uint32_t elems() const { return elems_; }

  template <bool is_output>
  __device__ void decode(uint32_t piece, char* to) {
    const uint32_t first = piece * piece_elems, left = first < elems_ ? min(elems_ - first, piece_elems) : 0;
    const uint32_t most = __reduce_max_sync(device::all_lanes, left);
    for (uint32_t begin = 0; begin < most; begin += tile_.lanes) {
      const uint32_t i = begin + tile_.lane;
      const bool exists = i < left;
      uint64_t mask = 0, value = 0;
      if (exists && stream_.read_bit(first_bit_ + first + i) != 0) {
        mask = masks_[first + i];
        value = values_[first + i];
      }
      // Without participation, no bit of the chunk is known.
      const uint32_t bits = exists ? chunk_bits - __popcll(mask) : 0;
      const uint32_t up_to = tile_.inclusive_scan(bits);
      if (exists)
        store_part<is_output>(to + i * sizeof(Chunk),
                              static_cast<Chunk>(value | spread(stream_.read(next_bit_ + up_to - bits, bits), ~mask)));
      next_bit_ += tile_.broadcast(up_to, tile_.lanes - 1);
    }
  }
  __device__ static bool has_bits(const CoderFormat&) { return true; }
  __device__ bool ok() const { return ok_ && next_bit_ <= payload_bits_; }

 private:
  // Puts the low bits of `bits`, from low to high, where the mask has ones, one run of ones at a time.
  __device__ static uint64_t spread(uint64_t bits, uint64_t mask) {
    if constexpr (chunk_bits < 64) mask &= (uint64_t{1} << chunk_bits) - 1;
    uint64_t result = 0;
    while (mask != 0) {
      const int begin = __ffsll(static_cast<long long>(mask)) - 1;
      const uint64_t above = ~(mask >> begin);
      const int count = above == 0 ? 64 : __ffsll(static_cast<long long>(above)) - 1;
      const uint64_t ones = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
      result |= (bits & ones) << begin;
      bits = count == 64 ? 0 : bits >> count;
      mask &= ~(ones << begin);
    }
    return result;
  }

  const Tile& tile_;
  BitStream stream_;
  uint32_t payload_bits_, first_bit_, next_bit_, elems_;
  const Chunk* masks_;
  const Chunk* values_;
  bool ok_;
};

}  // namespace narrowcast::store::cuda
