// Device code of the cache of encoded rows. All functions are called by whole CTAs; calls of one cache follow each
// other, and so do the functions of a call: begin, look up, admit, fill, divide; when the rows are there, copy.
#pragma once

#include <cstdint>

#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
#include "../rows/format.h"
#include "../table/control.h"
#include "cache_sets.h"

namespace narrowcast::store::cuda {

__device__ inline uint32_t mixed(uint32_t row) {
  row ^= row >> 16;
  row *= 0x85ebca6bu;
  row ^= row >> 13;
  row *= 0xc2b2ae35u;
  return row ^ row >> 16;
}
__device__ inline uint32_t set_of(const CacheSets& sets, uint32_t row) {
  return static_cast<uint32_t>(uint64_t{mixed(row)} * sets.count >> 32);
}

// The number of uses of a row, counted in two places that other rows share: the smaller one is closer.
class UseCounts {
 public:
  __device__ UseCounts(const CacheSets& sets, uint32_t row) : words_(sets.uses) {
    for (uint32_t i = 0; i < 2; ++i) places_[i] = mixed(row + (i + 1) * 0x9e3779b9u) & (4 * sets.use_words - 1);
  }
  __device__ uint32_t value() const { return min(value_at(places_[0]), value_at(places_[1])); }
  // Counts to `most`: an addition that is not conditional would overflow into other counters if many threads made it.
  __device__ void add() const {
    for (const uint32_t place : places_) {
      const uint32_t shift = place % 4 * 8;
      // The word may be an old one from a cache; the exchange returns the current one.
      uint32_t word = words_[place / 4];
      while ((word >> shift & 0xff) < most) {
        const uint32_t found = atomicCAS(&words_[place / 4], word, word + (1u << shift));
        if (found == word) break;
        word = found;
      }
    }
  }
  static constexpr uint32_t most = 100;

 private:
  __device__ uint32_t value_at(uint32_t place) const { return words_[place / 4] >> place % 4 * 8 & 0xff; }
  uint32_t* words_;
  uint32_t places_[2];
};

// The range of items of this thread, so that whole warps take part in each round.
struct GridRange {
  uint64_t at, apart;
  __device__ GridRange()
      : at(uint64_t{blockIdx.x} * blockDim.x + threadIdx.x), apart(uint64_t{gridDim.x} * blockDim.x) {}
  __device__ bool has_round(uint64_t count) const { return at - threadIdx.x % 32 < count; }
  __device__ void next(uint32_t rounds = 1) { at += rounds * apart; }
};

// Appends the items of some lanes to a list.
template <typename Item>
__device__ inline void append(Item* list, uint32_t* count, bool has_item, Item item) {
  const uint32_t lanes = __ballot_sync(device::all_lanes, has_item);
  if (lanes == 0) return;
  const auto lane = static_cast<uint32_t>(device::lane_id());
  uint32_t first = 0;
  if (lane == 0) first = atomicAdd(count, static_cast<uint32_t>(__popc(lanes)));
  first = __shfl_sync(device::all_lanes, first, 0);
  if (has_item) list[first + static_cast<uint32_t>(__popc(lanes & ((1u << lane) - 1)))] = item;
}
__device__ inline void add_sum(unsigned long long* to, uint32_t own) {
  const uint32_t sum = __reduce_add_sync(device::all_lanes, own);
  if (device::lane_id() == 0 && sum != 0) atomicAdd(to, static_cast<unsigned long long>(sum));
}

// The lists of entries that are made side by side.
enum class EntryList : uint32_t { hits, copies, others, none };

// Appends some entries of each lane to lists; those of `others` to *others, of length *other_count.
template <uint32_t Count>
__device__ inline void append_entries(const CacheCall& call, uint64_t* others, uint32_t* other_count,
                                      const uint64_t (&entries)[Count], const EntryList (&lists)[Count]) {
  constexpr uint32_t list_count = 3;
  const auto lane = static_cast<uint32_t>(device::lane_id());
  uint32_t lanes[list_count][Count], total = 0;
#pragma unroll
  for (uint32_t list = 0; list < list_count; ++list) {
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < Count; ++i) {
      lanes[list][i] = __ballot_sync(device::all_lanes, lists[i] == static_cast<EntryList>(list));
      sum += static_cast<uint32_t>(__popc(lanes[list][i]));
    }
    if (lane == list) total = sum;
  }
  // The first lanes reserve the places, each on one list, so that they wait together.
  uint32_t* const length = lane == 0 ? &call.words->hits : lane == 1 ? &call.words->copies : other_count;
  uint32_t begin = 0;
  if (lane < list_count && total != 0) begin = atomicAdd(length, total);
#pragma unroll
  for (uint32_t list = 0; list < list_count; ++list) {
    uint32_t at = __shfl_sync(device::all_lanes, begin, static_cast<int>(list));
#pragma unroll
    for (uint32_t i = 0; i < Count; ++i) {
      const uint32_t place = at + static_cast<uint32_t>(__popc(lanes[list][i] & ((1u << lane) - 1)));
      at += static_cast<uint32_t>(__popc(lanes[list][i]));
      if (lists[i] != static_cast<EntryList>(list)) continue;
      uint64_t* const to = list == 0   ? call.hits + place
                           : list == 1 ? call.hits + call.count - 1 - place
                                       : others + place;
      *to = entries[i];
    }
  }
}

// The entry at a place of the call. Its number is that of the row, or one that no row has.
__device__ inline uint64_t entry_at(const CacheCall& call, uint64_t place) {
  if (call.entries != nullptr) return call.entries[place];
  uint64_t row = call.first + place;
  if (call.indices != nullptr)
    row = call.index_bytes == 8 ? static_cast<const uint64_t*>(call.indices)[place]
                                : static_cast<uint64_t>(int64_t{static_cast<const int32_t*>(call.indices)[place]});
  return entry_of(static_cast<uint32_t>(min(row, uint64_t{~0u})), static_cast<uint32_t>(place));
}

__device__ inline TableState state_of(const CacheCall& call) {
  return call.state != nullptr ? *call.state : call.fixed_state;
}

// One CTA: begins a call. Drops rows that have changed, and halves the counters of uses from time to time.
__device__ inline void begin_cached_call(const CacheCall& call) {
  const CacheSets& sets = call.sets;
  CacheWords& words = *call.words;
  const uint32_t ways = sets.count * cache_ways;
  if (threadIdx.x == 0) {
    words.known_changes = words.changes;
    if (call.changes != nullptr) words.changes = device::load_acquire(call.changes);
    // After the changes: rows that have moved before are not copied from their slots, although the state of the call
    // may be older.
    words.has_redirects =
        call.redirects != nullptr ? device::load_acquire(call.redirects) : state_of(call).has_redirects;
  }
  __syncthreads();
  const uint64_t known = words.known_changes, changes = words.changes;
  const bool halves = sets.uses != nullptr && words.uses >= uint64_t{ways} * 10;
  uint32_t dropped = 0;
  if (changes - known < changes_kept) {
    for (uint64_t change = known + threadIdx.x; change < changes; change += blockDim.x) {
      const auto row = static_cast<uint32_t>(device::load_relaxed(call.changed_rows + change % changes_kept));
      int32_t* const rows = sets.rows + uint64_t{set_of(sets, row)} * cache_ways;
      for (uint32_t way = 0; way < cache_ways; ++way) {
        if (rows[way] != static_cast<int32_t>(row)) continue;
        rows[way] = -1;
        ++dropped;
      }
    }
  }
  // Whether any of the entries was of a later change.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    words.forgets_rows = call.changes != nullptr && device::load_acquire(call.changes) - known >= changes_kept ? 1 : 0;
  __syncthreads();
  if (words.forgets_rows != 0) {
    for (uint32_t way = threadIdx.x; way < ways; way += blockDim.x) {
      dropped += sets.rows[way] != -1 ? 1 : 0;
      sets.rows[way] = -1;
    }
  }
  if (halves)
    for (uint32_t i = threadIdx.x; i < sets.use_words; i += blockDim.x) sets.uses[i] = sets.uses[i] >> 1 & 0x7f7f7f7fu;
  add_sum(&words.counters.dropped, dropped);
  __syncthreads();
  if (threadIdx.x != 0) return;
  words.uses = halves ? 0 : words.uses + call.count;
  words.hits = words.copies = words.absent = words.misses = words.fills = 0;
  if (++words.call == 0) words.call = 1;
}

// The way of a row, or -1.
__device__ inline int32_t find_way(const CacheSets& sets, uint32_t row) {
  const uint32_t first = set_of(sets, row) * cache_ways;
  const auto* const rows = reinterpret_cast<const uint4*>(sets.rows + first);
  int32_t way = -1;
#pragma unroll
  for (uint32_t i = 0; i < cache_ways / 4; ++i) {
    const uint4 four = rows[i];
    const uint32_t equal = four.x == row ? 0 : four.y == row ? 1 : four.z == row ? 2 : four.w == row ? 3 : 4;
    if (equal != 4) way = static_cast<int32_t>(first + 4 * i + equal);
  }
  return way;
}

// Finds the rows of the call. Of several positions with one row, the first one to get here reads it.
__device__ inline void look_up_rows(const CacheCall& call) {
  constexpr uint32_t at_a_time = 4;
  const CacheSets& sets = call.sets;
  const uint64_t row_count = state_of(call).row_count;
  const uint32_t number = call.words->call;
  uint32_t hits = 0, misses = 0;
  for (GridRange range; range.has_round(call.count); range.next(at_a_time)) {
    uint64_t entries[at_a_time];
    int32_t ways[at_a_time];
    EntryList lists[at_a_time];
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) {
      const uint64_t at = range.at + i * range.apart;
      lists[i] = at < call.count ? EntryList::others : EntryList::none;
      entries[i] = at < call.count ? entry_at(call, at) : entry_of(~0u, 0);
    }
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i)
      ways[i] = entry_number(entries[i]) < row_count ? find_way(sets, entry_number(entries[i])) : -1;
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) {
      if (lists[i] == EntryList::none) continue;
      const uint32_t position = entry_position(entries[i]);
      call.way_of[position] = ways[i];
      if (entry_number(entries[i]) >= row_count) continue;
      (ways[i] >= 0 ? hits : misses) += 1;
      if (sets.uses != nullptr) UseCounts(sets, entry_number(entries[i])).add();
      if (ways[i] < 0) continue;
      volatile uint32_t* const stamp = sets.stamps + ways[i];
      const bool is_first = *stamp != number && atomicExch(&sets.stamps[ways[i]], number) != number;
      if (is_first) sets.firsts[ways[i]] = position;
      lists[i] = is_first ? EntryList::hits : EntryList::copies;
      entries[i] = entry_of(static_cast<uint32_t>(ways[i]), position);
    }
    append_entries(call, call.absent, &call.words->absent, entries, lists);
  }
  add_sum(&call.words->counters.hits, hits);
  add_sum(&call.words->counters.misses, misses);
}

// Chooses a way for a row that is not in the cache, under the lock of its set. Returns -1 if it gets none.
__device__ inline int32_t choose_way(const CacheCall& call, uint32_t set, uint32_t row, uint32_t* filled,
                                     uint32_t* evicted) {
  const CacheSets& sets = call.sets;
  const uint32_t number = call.words->call;
  volatile int32_t* const rows = sets.rows + uint64_t{set} * cache_ways;
  volatile uint32_t* const stamps = sets.stamps + uint64_t{set} * cache_ways;
  // All loads are on their way at the same time.
  int32_t held[cache_ways];
  uint32_t used[cache_ways];
#pragma unroll
  for (uint32_t way = 0; way < cache_ways; ++way) held[way] = rows[way], used[way] = stamps[way];
  int32_t chosen = -1, own = -1;
  uint32_t best = 0;
#pragma unroll
  for (uint32_t way = 0; way < cache_ways; ++way) {
    if (held[way] == static_cast<int32_t>(row)) own = static_cast<int32_t>(way);  // admitted a moment ago
    // How well the way can be given up. Rows that this call uses stay.
    uint32_t score = 0;
    if (held[way] == -1) {
      score = ~0u;
    } else if (call.may_evict && number != used[way]) {
      if (sets.policy == CachePolicy::lru) score = number - used[way];
      if (sets.policy == CachePolicy::lfu) score = 256 - UseCounts(sets, static_cast<uint32_t>(held[way])).value();
    }
    if (score > best) {
      best = score;
      chosen = static_cast<int32_t>(way);
    }
  }
  if (own >= 0) return static_cast<int32_t>(set * cache_ways) + own;
  if (chosen >= 0 && best != ~0u && sets.policy == CachePolicy::lfu && UseCounts(sets, row).value() <= 256 - best)
    chosen = -1;
  if (chosen >= 0) {
    *evicted += best != ~0u ? 1 : 0;
    rows[chosen] = static_cast<int32_t>(row);
    stamps[chosen] = number;
    *filled = 1;
  }
  return chosen < 0 ? -1 : static_cast<int32_t>(set * cache_ways) + chosen;
}

__device__ inline int32_t admit_row(const CacheCall& call, uint32_t row, uint32_t* filled, uint32_t* evicted) {
  const uint32_t set = set_of(call.sets, row);
  volatile int32_t* const rows = call.sets.rows + uint64_t{set} * cache_ways;
  const bool may_evict = call.may_evict && call.sets.policy != CachePolicy::fixed;
  int32_t way = -1;
  bool is_done = false;
  // Other threads, also of this warp, may hold the lock for a while.
  for (uint32_t attempt = 0; attempt < 1 << 16 && !is_done; ++attempt) {
    // Another thread may have admitted the same row. In most calls, sets whose rows stay are full.
    bool has_room = may_evict;
#pragma unroll
    for (uint32_t i = 0; i < cache_ways; ++i) {
      const int32_t held = rows[i];
      if (held == static_cast<int32_t>(row)) way = static_cast<int32_t>(set * cache_ways + i);
      has_room = has_room || held == -1;
    }
    is_done = way >= 0 || !has_room;
    if (is_done || atomicExch(&call.sets.locks[set], 1u) != 0) continue;
    __threadfence();
    way = choose_way(call, set, row, filled, evicted);
    __threadfence();
    atomicExch(&call.sets.locks[set], 0u);
    is_done = true;
  }
  return way;
}

// Gives ways to rows that are not in the cache.
__device__ inline void admit_rows(const CacheCall& call) {
  CacheWords& words = *call.words;
  const uint64_t row_count = state_of(call).row_count;
  const uint32_t absent = words.absent;
  uint32_t fills = 0, evictions = 0;
  for (GridRange range; range.has_round(absent); range.next()) {
    const uint64_t entry = range.at < absent ? call.absent[range.at] : entry_of(~0u, 0);
    const uint32_t row = entry_number(entry), position = entry_position(entry);
    uint32_t filled = 0;
    int32_t way = -1;
    if (row < row_count) {
      way = admit_row(call, row, &filled, &evictions);
      call.way_of[position] = way;
      if (filled != 0) call.sets.firsts[way] = position;
    }
    append(call.fills, &words.fills, filled != 0, way);
    fills += filled;
  }
  add_sum(&words.counters.fills, fills);
  add_sum(&words.counters.evictions, evictions);
}

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

// Divides the entries whose rows were not in the cache into those whose rows are now, and the others.
__device__ inline void divide_rows(const CacheCall& call) {
  CacheWords& words = *call.words;
  const uint64_t row_count = state_of(call).row_count;
  const uint32_t absent = words.absent;
  for (GridRange range; range.has_round(absent); range.next()) {
    const bool is_entry = range.at < absent;
    uint64_t entry = is_entry ? call.absent[range.at] : entry_of(~0u, 0);
    const uint32_t row = entry_number(entry), position = entry_position(entry);
    const int32_t way = row < row_count ? call.way_of[position] : -1;
    EntryList list = is_entry ? EntryList::others : EntryList::none;
    if (way >= 0 && call.sets.rows[way] == static_cast<int32_t>(row)) {
      list = call.sets.firsts[way] == position ? EntryList::hits : EntryList::copies;
      entry = entry_of(static_cast<uint32_t>(way), position);
    }
    append_entries<1>(call, call.misses, &words.misses, {entry}, {list});
  }
}

// Copies rows of the output, Part by Part: an integer whose size divides rows and their places. A warp takes 32 rows at
// a time, of which groups of lanes copy several.
template <typename Part>
__device__ inline void copy_rows(const CacheCall& call) {
  constexpr uint32_t rows_at_a_time = 4;
  const uint32_t copies = call.words->copies, parts = call.row_bytes / sizeof(Part);
  const uint32_t lanes = parts > 16 ? 32 : parts > 8 ? 16 : 8, groups = 32 / lanes;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  for (uint64_t first = thread - lane; first < copies; first += uint64_t{gridDim.x} * blockDim.x) {
    const uint64_t own = first + lane;
    const uint64_t entry = own < copies ? call.hits[call.count - 1 - own] : 0;
    const uint32_t own_to = entry_position(entry), own_from = own < copies ? call.sets.firsts[entry_number(entry)] : 0;
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
  if (thread == 0) call.words->counters.copies += copies;
}

}  // namespace narrowcast::store::cuda
