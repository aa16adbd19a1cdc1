// Device code of the cache of encoded rows that copies payloads and decoded rows (cache.cuh).
#pragma once

#include <cstdint>

#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
#include "../rows/format.h"
#include "cache.cuh"
#include "cache_sets.h"

namespace narrowcast::store::cuda {

// Copies the payloads of admitted rows, Part by Part: an integer whose size divides slots and strides. A group of lanes
// copies a row, and several rows at a time, so that enough reads of host memory are on their way.
template <typename Part>
__device__ inline void fill_ways(const CacheCall& call) {
  constexpr uint32_t rows_at_a_time = 4;
  const CacheSets& sets = call.sets;
  const RowPlaces& places = call.places;
  const bool has_redirects = places.headers != nullptr && call.words->has_redirects != 0;
  const auto parts = static_cast<uint32_t>(sets.slot_bytes / sizeof(Part));
  const uint32_t lanes = parts > 16 ? 32 : parts > 8 ? 16 : 8, fills = call.words->fills;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, apart = gridDim.x * blockDim.x / lanes;
  uint32_t copied = 0;
  for (uint64_t first = thread / lanes; first < fills; first += uint64_t{rows_at_a_time} * apart) {
    const char* from[rows_at_a_time];
    Part* to[rows_at_a_time];
    uint32_t stored[rows_at_a_time];  // parts in host memory
#pragma unroll
    for (uint32_t i = 0; i < rows_at_a_time; ++i) {
      const uint64_t fill = first + uint64_t{i} * apart;
      const int32_t way = fill < fills ? call.fills[fill] : -1;
      const int32_t row = way >= 0 ? sets.rows[way] : -1;
      to[i] = nullptr;
      if (row == -1) continue;
      const auto number = static_cast<uint32_t>(row);
      uint64_t begin = number * places.stride, bytes = places.stride;
      if (places.offsets != nullptr) {
        begin = uint64_t{places.offsets[number]} * places.unit_bytes;
        bytes = uint64_t{places.offsets[number + 1]} * places.unit_bytes - begin;
      }
      from[i] = places.slots + begin;
      to[i] = reinterpret_cast<Part*>(sets.slots + static_cast<uint64_t>(way) * sets.slot_bytes);
      stored[i] = static_cast<uint32_t>(min(bytes, sets.slot_bytes) / sizeof(Part));
    }
    for (uint32_t part = thread % lanes; part < parts; part += lanes) {
      Part values[rows_at_a_time] = {};
#pragma unroll
      for (uint32_t i = 0; i < rows_at_a_time; ++i) {
        if (to[i] == nullptr || part >= stored[i]) continue;
        values[i] = reinterpret_cast<const Part*>(from[i])[part];
        copied += sizeof(Part);
      }
#pragma unroll
      for (uint32_t i = 0; i < rows_at_a_time; ++i)
        if (to[i] != nullptr) to[i][part] = values[i];
    }
  }
  if (copied != 0) atomicAdd(&call.words->counters.fetched_bytes, static_cast<unsigned long long>(copied));
  if (!has_redirects) return;
  // Rows that are not coded have no header in their slot that says that they have moved.
  for (uint64_t i = thread; i < fills; i += uint64_t{gridDim.x} * blockDim.x) {
    int32_t& row = sets.rows[call.fills[i]];
    if ((device::load_acquire(places.headers + static_cast<uint32_t>(row)) & place_mask) == place_redirect) row = -1;
  }
}

// Copies rows of the output, Part by Part: an integer whose size divides rows and their places. A warp takes 32 rows at
// a time, of which groups of lanes copy several. Rows of the cache that could not be decoded leave it.
template <typename Part>
__device__ inline void copy_rows(const CacheCall& call) {
  constexpr uint32_t rows_at_a_time = 4;
  const uint32_t copies = call.words->copies, parts = call.row_bytes / sizeof(Part);
  const uint32_t lanes = parts > 16 ? 32 : parts > 8 ? 16 : 8, groups = 32 / lanes;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  for (uint64_t first = thread - lane; first < copies; first += uint64_t{gridDim.x} * blockDim.x) {
    const uint64_t own = first + lane;
    const uint64_t entry = own < copies ? call.copies[own] : entry_of(cached_row, 0);
    const uint32_t own_to = entry_position(entry);
    const uint32_t own_from = own < copies ? call.sets.firsts[entry_number(entry) - cached_row] : 0;
    const auto count = static_cast<uint32_t>(min(copies - first, uint64_t{32}));
    for (uint32_t row = 0; row < count; row += rows_at_a_time * groups) {
      const Part* from[rows_at_a_time];
      Part* to[rows_at_a_time];
#pragma unroll
      for (uint32_t i = 0; i < rows_at_a_time; ++i) {
        const uint32_t number = row + i * groups + lane / lanes;
        const uint32_t its_from = __shfl_sync(device::all_lanes, own_from, static_cast<int>(number % 32));
        const uint32_t its_to = __shfl_sync(device::all_lanes, own_to, static_cast<int>(number % 32));
        from[i] = reinterpret_cast<const Part*>(call.out + its_from * call.out_stride);
        to[i] = number < count ? reinterpret_cast<Part*>(call.out + its_to * call.out_stride) : nullptr;
      }
      for (uint32_t part = lane % lanes; part < parts; part += lanes) {
        Part values[rows_at_a_time] = {};
#pragma unroll
        for (uint32_t i = 0; i < rows_at_a_time; ++i)
          if (to[i] != nullptr) values[i] = from[i][part];
#pragma unroll
        for (uint32_t i = 0; i < rows_at_a_time; ++i)
          if (to[i] != nullptr) __stcs(to[i] + part, values[i]);
      }
    }
  }
  for (uint32_t i = thread; i < call.words->retries; i += gridDim.x * blockDim.x)
    drop_row(call.sets, entry_number(call.retries[i]));
  if (thread != 0) return;
  call.words->counters.copies += copies;
  call.words->counters.overflows += call.words->retries;
}

}  // namespace narrowcast::store::cuda
