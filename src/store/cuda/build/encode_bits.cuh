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

template <typename Chunk>
struct EncodeInvariant {
  using Elem = Chunk;
  using Lanes = RowLanes<32>;
  using Shared = BitEmitter::Shared;
  static constexpr uint32_t chunk_bits = 8 * sizeof(Chunk);

  __device__ static uint32_t encode(const EncodeFormat& format, const Chunk* row, uint32_t* payload, Chunk*, uint32_t*,
                                    Shared& shared, bool) {
    const uint32_t lane = device::lane_id(), chunks = format.chunks;
    uint32_t cluster = 0, most_saved = 0;
    for (uint32_t candidate = 0; candidate < format.clusters; ++candidate) {
      const uint32_t saved = saved_bits(format, row, candidate);
      if (saved > most_saved) most_saved = saved, cluster = candidate;
    }
    const uint64_t bits = first_coder_bit + format.cluster_bits + uint64_t{chunks} * (1 + chunk_bits) - most_saved;
    const uint32_t bytes = stream_bytes(bits, format.row_bytes);
    if (bytes == 0) return 0;

    BitEmitter emitter(shared, payload, first_coder_bit);
    emitter.put(lane == 0 ? cluster : 0, lane == 0 ? format.cluster_bits : 0);
    const Chunk* const masks = masks_of(format, cluster);
    const Chunk* const values = values_of(format, cluster);
    const uint32_t rounds = (chunks + 31) / 32;
    // The ballot of a round is the participation bits of 32 chunks.
    for (uint32_t first = 0; first < rounds; first += 32) {
      uint32_t own = 0;
      const uint32_t here = min(rounds - first, 32u);
      for (uint32_t round = 0; round < here; ++round) {
        const uint32_t chunk = 32 * (first + round) + lane;
        const bool participates = chunk < chunks && static_cast<Chunk>(row[chunk] & masks[chunk]) == values[chunk];
        const uint32_t participating = __ballot_sync(device::all_lanes, participates);
        if (round == lane) own = participating;
      }
      const uint32_t at = 32 * (first + lane);
      emitter.put(own, at < chunks ? min(chunks - at, 32u) : 0);
    }
    for (uint32_t first = 0; first < chunks; first += 32) {
      const uint32_t chunk = first + lane;
      uint64_t field = 0;
      uint32_t count = 0;
      if (chunk < chunks) {
        const Chunk mask = masks[chunk], value = row[chunk];
        const bool participates = static_cast<Chunk>(value & mask) == values[chunk];
        const uint64_t select = participates ? static_cast<Chunk>(~mask) : static_cast<Chunk>(~Chunk{0});
        field = selected(value, select);
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
  // The bits of the row that a cluster saves.
  __device__ static uint32_t saved_bits(const EncodeFormat& format, const Chunk* row, uint32_t cluster) {
    const Chunk* const masks = masks_of(format, cluster);
    const Chunk* const values = values_of(format, cluster);
    uint32_t saved = 0;
    for (uint32_t chunk = device::lane_id(); chunk < format.chunks; chunk += 32) {
      const Chunk mask = masks[chunk];
      if (static_cast<Chunk>(row[chunk] & mask) == values[chunk]) saved += __popcll(mask);
    }
    return __reduce_add_sync(device::all_lanes, saved);
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
