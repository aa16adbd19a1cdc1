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

// The elements are the chunks. has_stages: rows have the stages zeros or trim, which leave out whole chunks and bits at
// fixed places in them.
template <typename Chunk, bool has_stages = false>
class InvariantRow {
  static constexpr uint32_t chunk_bits = 8 * sizeof(Chunk);

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
      const Known known = has_stages ? staged_chunk(first + begin, exists) : chunk(first + i, exists);
      const uint32_t bits = exists ? chunk_bits - __popcll(known.mask) : 0;
      const uint32_t up_to = tile_.inclusive_scan(bits);
      if (exists)
        store_part<is_output>(
            to + i * sizeof(Chunk),
            static_cast<Chunk>(known.value | spread(stream_.read(next_bit_ + up_to - bits, bits), ~known.mask)));
      next_bit_ += tile_.broadcast(up_to, tile_.lanes - 1);
    }
  }
  __device__ static bool has_bits(const CoderFormat&) { return true; }
  __device__ bool ok() const { return ok_ && next_bit_ <= payload_bits_; }

 private:
  // The bits of a chunk that are not in its field.
  struct Known {
    uint64_t mask, value;
  };
  __device__ Known chunk(uint32_t number, bool exists) const {
    // Without participation, no bit of the chunk is known.
    if (!exists || stream_.read_bit(first_bit_ + number) == 0) return {0, 0};
    return {masks_[number], values_[number]};
  }
  // The same for the lane's chunk of those from `first` on that the tile decodes next. first_bit_: the participation
  // bit of the first of them that is present.
  __device__ Known staged_chunk(uint32_t first, bool exists) {
    const uint32_t number = first + tile_.lane, all = tile_.lanes == 32 ? ~0u : (1u << tile_.lanes) - 1;
    const uint32_t present = row_.has_zeros != 0 ? stream_.read_word(zeros_bit() + first) & all : all;
    const uint32_t bit = first_bit_ + __popc(present & ((1u << tile_.lane) - 1));
    first_bit_ += __popc(present);
    if (!exists || (present >> tile_.lane & 1) == 0) return {static_cast<Chunk>(~Chunk{0}), 0};
    if (stream_.read_bit(bit) != 0) return {masks_[number], values_[number]};
    const uint32_t shift = number * chunk_bits % 64;
    return {static_cast<Chunk>(coder_.trimmed_bits >> shift), static_cast<Chunk>(coder_.trimmed_values >> shift)};
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
  const RowFormat& row_;
  const CoderFormat& coder_;
  BitStream stream_;
  uint32_t payload_bits_, first_bit_, next_bit_, elems_;
  const Chunk* masks_;
  const Chunk* values_;
  bool ok_;
};

}  // namespace narrowcast::store::cuda
