// Encodes rows with the coders `plain` and `invariant` (docs/format/rows.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../device/warp.cuh"
#include "bit_emitter.cuh"
#include "encode_arguments.h"
#include "encode_rows.cuh"

namespace narrowcast::store::cuda {

// The bytes of a payload of so many bits; 0 if the row is stored raw because it would not be shorter.
__device__ inline uint32_t stream_bytes(uint64_t bits, uint32_t row_bytes) {
  const uint64_t bytes = (bits + 31) / 32 * 4;
  return bytes < header_bytes + aligned4(row_bytes) ? static_cast<uint32_t>(bytes) : 0;
}

template <typename T>
struct EncodePlain {
  using Elem = T;
  using Lanes = RowLanes<32>;
  using Shared = BitEmitter::Shared;

  __device__ static uint32_t encode(const EncodeFormat& format, const Elem* row, uint32_t* payload, Elem* present,
                                    uint32_t* map, Shared& shared, bool) {
    const uint32_t lane = device::lane_id();
    const Elem* elems = row;
    uint32_t count = format.elems;
    if (format.has_zeros) {
      count = split_zeros(row, format.elems, map, present);
      elems = present;
    }
    if (!follow_trim<Lanes>(format, elems, count)) return 0;
    const uint64_t bits = first_coder_bit + (format.has_zeros ? format.elems : 0) + uint64_t{count} * format.coded_bits;
    const uint32_t bytes = stream_bytes(bits, format.row_bytes);
    if (bytes == 0) return 0;

    BitEmitter emitter(shared, payload, first_coder_bit);
    if (format.has_zeros)
      for (uint32_t first = 0; first < format.elems; first += 1024) {
        const uint32_t at = first + 32 * lane;
        const uint32_t here = at < format.elems ? min(format.elems - at, 32u) : 0;
        emitter.put(here != 0 ? map[at / 32] : 0, here);
      }
    if (format.coded_bits != 0)
      for (uint32_t first = 0; first < count; first += 32) {
        const bool exists = first + lane < count;
        const uint64_t elem = exists ? elems[first + lane] : 0;
        emitter.put(elem >> format.low_bits & format.coded, exists ? format.coded_bits : 0);
      }
    emitter.finish();
    return bytes;
  }
};

// has_stages: rows have the stages zeros or trim.
template <typename Chunk, bool has_stages = false>
struct EncodeInvariant {
  using Elem = Chunk;
  using Lanes = RowLanes<32>;
  using Shared = BitEmitter::Shared;
  static constexpr uint32_t chunk_bits = 8 * sizeof(Chunk);

  __device__ static uint32_t encode(const EncodeFormat& format, const Chunk* row, uint32_t* payload, Chunk*, uint32_t*,
                                    Shared& shared, bool) {
    const uint32_t lane = device::lane_id(), chunks = format.chunks;
    uint64_t bits = first_coder_bit + format.cluster_bits + uint64_t{chunks} * (1 + chunk_bits);
    if constexpr (has_stages) {
      const Coded coded = apply_stages(format, row);
      if (!coded.follows_trim) return 0;
      bits = first_coder_bit + format.cluster_bits + (format.has_zeros ? chunks : 0) + coded.bits;
    }
    uint32_t cluster = 0, most_saved = 0;
    for (uint32_t candidate = 0; candidate < format.clusters; ++candidate) {
      const uint32_t saved = saved_bits(format, row, candidate);
      if (saved > most_saved) most_saved = saved, cluster = candidate;
    }
    const uint32_t bytes = stream_bytes(bits - most_saved, format.row_bytes);
    if (bytes == 0) return 0;

    BitEmitter emitter(shared, payload, first_coder_bit);
    emitter.put(lane == 0 ? cluster : 0, lane == 0 ? format.cluster_bits : 0);
    const Chunk* const masks = masks_of(format, cluster);
    const Chunk* const values = values_of(format, cluster);
    const auto participates = [&](uint32_t chunk) {
      return static_cast<Chunk>(row[chunk] & masks[chunk]) == values[chunk];
    };
    if (has_stages && format.has_zeros) {
      put_bits<false>(emitter, row, chunks, [&](uint32_t chunk) { return row[chunk] != 0; });
      put_bits<true>(emitter, row, chunks, participates);
    } else {
      put_bits<false>(emitter, row, chunks, participates);
    }
    for (uint32_t first = 0; first < chunks; first += 32) {
      const uint32_t chunk = first + lane;
      uint64_t field = 0;
      uint32_t count = 0;
      if (chunk < chunks && is_present(format, row[chunk])) {
        const uint64_t select = static_cast<Chunk>(~(participates(chunk) ? masks[chunk] : trimmed_bits(format, chunk)));
        field = selected(row[chunk], select);
        count = __popcll(select);
      }
      emitter.put(field, count);
    }
    emitter.finish();
    return bytes;
  }

 private:
  __device__ static const Chunk* masks_of(const EncodeFormat& format, uint32_t cluster) {
    return static_cast<const Chunk*>(format.masks) + size_t{cluster} * format.chunks;
  }
  __device__ static const Chunk* values_of(const EncodeFormat& format, uint32_t cluster) {
    return static_cast<const Chunk*>(format.cluster_values) + size_t{cluster} * format.chunks;
  }
  // Bits of a chunk that the trim removes.
  __device__ static Chunk trimmed_bits(const EncodeFormat& format, uint32_t chunk) {
    return has_stages ? static_cast<Chunk>(format.constant >> chunk * chunk_bits % 64) : Chunk{0};
  }
  __device__ static bool is_present(const EncodeFormat& format, Chunk chunk) {
    return !has_stages || !format.has_zeros || chunk != 0;
  }
  // The participation bits and fields that the stages leave, if no chunk participates.
  struct Coded {
    bool follows_trim;
    uint32_t bits;
  };
  __device__ static Coded apply_stages(const EncodeFormat& format, const Chunk* row) {
    bool differs = false;
    uint32_t bits = 0;
    for (uint32_t chunk = device::lane_id(); chunk < format.chunks; chunk += 32) {
      if (!is_present(format, row[chunk])) continue;
      const Chunk trimmed = trimmed_bits(format, chunk);
      const auto values = static_cast<Chunk>(format.values >> chunk * chunk_bits % 64);
      differs = differs || static_cast<Chunk>(row[chunk] & trimmed) != values;
      bits += 1 + chunk_bits - __popcll(trimmed);
    }
    return {!__any_sync(device::all_lanes, differs), __reduce_add_sync(device::all_lanes, bits)};
  }
  // The bits of the row that a cluster saves.
  __device__ static uint32_t saved_bits(const EncodeFormat& format, const Chunk* row, uint32_t cluster) {
    const Chunk* const masks = masks_of(format, cluster);
    const Chunk* const values = values_of(format, cluster);
    uint32_t saved = 0;
    for (uint32_t chunk = device::lane_id(); chunk < format.chunks; chunk += 32) {
      const Chunk mask = masks[chunk];
      if (is_present(format, row[chunk]) && static_cast<Chunk>(row[chunk] & mask) == values[chunk])
        saved += __popcll(static_cast<Chunk>(mask & ~trimmed_bits(format, chunk)));
    }
    return __reduce_add_sync(device::all_lanes, saved);
  }
  // Appends a bit for each chunk, or for each that is not 0.
  template <bool without_zeros, typename Bit>
  __device__ static void put_bits(BitEmitter& emitter, const Chunk* row, uint32_t chunks, Bit bit) {
    const uint32_t lane = device::lane_id(), rounds = (chunks + 31) / 32;
    // The ballot of a round is the bits of 32 chunks.
    for (uint32_t first = 0; first < rounds; first += 32) {
      uint32_t own = 0, own_chunks = 0;
      const uint32_t here = min(rounds - first, 32u);
      for (uint32_t round = 0; round < here; ++round) {
        const uint32_t chunk = 32 * (first + round) + lane;
        const bool exists = chunk < chunks;
        const uint32_t ones = __ballot_sync(device::all_lanes, exists && bit(chunk));
        if (round == lane) own = ones;
        if constexpr (without_zeros) {
          const uint32_t present = __ballot_sync(device::all_lanes, exists && row[chunk] != 0);
          if (round == lane) own_chunks = present;
        }
      }
      const uint32_t at = 32 * (first + lane);
      if constexpr (without_zeros)
        emitter.put(selected(own, own_chunks), __popc(own_chunks));
      else
        emitter.put(own, at < chunks ? min(chunks - at, 32u) : 0);
    }
  }
  // Moves the bits where `select` has ones to the bottom, one run of ones at a time.
  __device__ static uint64_t selected(uint64_t bits, uint64_t select) {
    uint64_t result = 0;
    for (uint32_t to = 0; select != 0;) {
      const int begin = __ffsll(static_cast<long long>(select)) - 1;
      const uint64_t above = ~(select >> begin);
      const int count = above == 0 ? 64 : __ffsll(static_cast<long long>(above)) - 1;
      const uint64_t ones = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
      result |= (bits >> begin & ones) << to;
      to += count;
      select &= ~(ones << begin);
    }
    return result;
  }
};

}  // namespace narrowcast::store::cuda
