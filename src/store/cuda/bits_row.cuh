// The coders `plain` and `invariant` of rows (docs/format/rows.md): the tiles of a warp decode one row each from shared
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

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

// The elements are the chunks. has_stages: rows have the stages zeros or trim, which leave out whole chunks and bits at
// fixed places in them.
template <typename Chunk, bool has_stages = false>
class InvariantRow {
  static constexpr uint32_t chunk_bits = 8 * sizeof(Chunk);
  // Arithmetic with 64 bits takes twice as many instructions.
  using Word = std::conditional_t<sizeof(Chunk) == 8, uint64_t, uint32_t>;

 public:
  using Staged = Chunk;
  using Team = WithoutStages;
  static constexpr bool has_header = true;
  static constexpr uint32_t map_bit = 0;  // not known before the cluster is
  static constexpr uint32_t piece_elems = 1024;

  __device__ InvariantRow(const Tile& tile, const Team&, const RowFormat& row, const CoderFormat& coder, uint32_t,
                          const char* payload, uint32_t payload_bytes, uint32_t, uint32_t elems, char*)
      : tile_(tile), row_(row), coder_(coder), stream_(payload, payload_bytes), payload_bits_(payload_bytes * 8) {
    const auto cluster = static_cast<uint32_t>(stream_.read(first_coder_bit, coder.cluster_bits));
    first_bit_ = first_coder_bit + coder.cluster_bits;
    uint32_t present = row.elems;
    if (has_stages && row.has_zeros != 0) {
      present = count_present();
      first_bit_ += row.elems;
    }
    next_bit_ = first_bit_ + present;
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
      const Parts parts = has_stages ? staged_chunk(first + begin, exists) : chunk(first + i, exists);
      const uint32_t bits = ones_of(parts.field), up_to = tile_.inclusive_scan(bits);
      if (exists)
        store_part<is_output>(
            to + i * sizeof(Chunk),
            static_cast<Chunk>(parts.known | spread(read_word(next_bit_ + up_to - bits), parts.field)));
      next_bit_ += tile_.broadcast(up_to, tile_.lanes - 1);
    }
  }
  __device__ static bool has_bits(const CoderFormat&) { return true; }
  __device__ bool ok() const { return ok_ && next_bit_ <= payload_bits_; }

 private:
  // Which bits of a chunk are in its field, and the others.
  struct Parts {
    Word field, known;
  };
  __device__ Parts participating(uint32_t number) const {
    return {static_cast<Chunk>(~masks_[number]), values_[number]};
  }
  __device__ Parts chunk(uint32_t number, bool exists) const {
    if (!exists) return {0, 0};
    if (stream_.read_bit(first_bit_ + number) == 0) return {static_cast<Chunk>(~Chunk{0}), 0};
    return participating(number);
  }
  // The same for the lane's chunk of those from `first` on that the tile decodes next. first_bit_: the participation
  // bit of the first of them that is present.
  __device__ Parts staged_chunk(uint32_t first, bool exists) {
    const uint32_t number = first + tile_.lane, all = tile_.lanes == 32 ? ~0u : (1u << tile_.lanes) - 1;
    const uint32_t present = row_.has_zeros != 0 ? stream_.read_word(zeros_bit() + first) & all : all;
    const uint32_t bit = first_bit_ + __popc(present & ((1u << tile_.lane) - 1));
    first_bit_ += __popc(present);
    if (!exists || (present >> tile_.lane & 1) == 0) return {0, 0};
    if (stream_.read_bit(bit) != 0) return participating(number);
    const uint32_t shift = number * chunk_bits % 64;
    return {static_cast<Chunk>(~coder_.trimmed_bits >> shift), static_cast<Chunk>(coder_.trimmed_values >> shift)};
  }
  __device__ uint32_t zeros_bit() const { return first_coder_bit + coder_.cluster_bits; }
  // The number of ones in the zero map.
  __device__ uint32_t count_present() const {
    uint32_t ones = 0;
    for (uint32_t first = tile_.lane * 32; first < row_.elems; first += tile_.lanes * 32) {
      const uint32_t beyond = 32 - min(row_.elems - first, 32u);
      ones += __popc(stream_.read_word(zeros_bit() + first) << beyond);
    }
    return tile_.sum(ones);
  }

  __device__ static uint32_t ones_of(Word bits) {
    if constexpr (sizeof(Word) == 8) return __popcll(bits);
    return __popc(static_cast<uint32_t>(bits));
  }
  __device__ Word read_word(uint32_t at) const {
    if constexpr (sizeof(Word) == 8) return stream_.read(at, 64);
    return stream_.read_word(at);
  }
  // Puts the low bits of `bits`, from low to high, where the mask has ones.
  __device__ static Word spread(Word bits, Word mask) {
    // Most often these are the lowest bits, or all.
    if ((mask & (mask + 1)) == 0) return bits & mask;
    Word result = 0;
    while (mask != 0) {
      // One run of ones at a time. A carry passes it.
      const Word lowest = mask & -mask, carried = mask + lowest, run = mask & ~carried;
      result |= bits * lowest & run;
      bits >>= ones_of(run);
      mask &= carried;
    }
    return result;
  }

  const Tile& tile_;
  const RowFormat& row_;
  const CoderFormat& coder_;
  BitStream stream_;
  uint32_t payload_bits_, first_bit_, next_bit_, elems_;
  const Chunk* masks_;
  const Chunk* values_;
  bool ok_;
};

}  // namespace narrowcast::store::cuda
