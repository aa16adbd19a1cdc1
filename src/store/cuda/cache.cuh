// Device code of the cache of encoded rows. All functions are called by whole CTAs; calls of one cache follow each
// other, and so do the functions of a call: begin, look up, admit, divide; when the rows are there, copy. To fill a
// cache only: begin, look up, admit, fill.
#pragma once

#include <cstdint>

#include "../../device/ptx/system_memory.cuh"
#include "../../device/warp.cuh"
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

// The range of items of this thread, so that whole warps take part in each round.
struct GridRange {
  uint64_t at, apart;
  __device__ GridRange()
      : at(uint64_t{blockIdx.x} * blockDim.x + threadIdx.x), apart(uint64_t{gridDim.x} * blockDim.x) {}
  __device__ bool has_round(uint64_t count, uint32_t each = 1) const { return (at - threadIdx.x % 32) * each < count; }
  __device__ void next() { at += apart; }
  // Item i of this lane if a warp takes `each` times 32 items that follow each other.
  __device__ uint64_t of_warp(uint32_t i, uint32_t each) const {
    const uint32_t lane = threadIdx.x % 32;
    return (at - lane) * each + i * 32 + lane;
  }
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

// Appends items of the lanes to several lists, Count of each lane: finds their places. All lists at once, so that their
// lengths are waited for together. has_items: bits by item.
template <uint32_t Lists, uint32_t Count>
__device__ inline void find_places(uint32_t* const (&lengths)[Lists], const uint32_t (&has_items)[Lists],
                                   uint32_t (&places)[Lists][Count]) {
  const auto lane = static_cast<uint32_t>(device::lane_id());
  uint32_t lanes[Lists][Count], own = 0;
  uint32_t* own_length = nullptr;
#pragma unroll
  for (uint32_t list = 0; list < Lists; ++list) {
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < Count; ++i) {
      lanes[list][i] = __ballot_sync(device::all_lanes, (has_items[list] >> i & 1) != 0);
      sum += static_cast<uint32_t>(__popc(lanes[list][i]));
    }
    if (lane == list) own = sum, own_length = lengths[list];
  }
  uint32_t begin = 0;
  if (own != 0) begin = atomicAdd(own_length, own);
#pragma unroll
  for (uint32_t list = 0; list < Lists; ++list) {
    uint32_t at = __shfl_sync(device::all_lanes, begin, static_cast<int>(list));
#pragma unroll
    for (uint32_t i = 0; i < Count; ++i) {
      places[list][i] = at + static_cast<uint32_t>(__popc(lanes[list][i] & ((1u << lane) - 1)));
      at += static_cast<uint32_t>(__popc(lanes[list][i]));
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
// Whether rows make room for others.
__device__ inline bool may_evict(const CacheCall& call) {
  return call.may_evict && call.sets.policy != CachePolicy::fixed;
}

// Returns how many ways had the row.
__device__ inline uint32_t drop_row(const CacheSets& sets, uint32_t row) {
  int32_t* const rows = sets.rows + uint64_t{set_of(sets, row)} * cache_ways;
  uint32_t dropped = 0;
  for (uint32_t way = 0; way < cache_ways; ++way) {
    if (rows[way] != static_cast<int32_t>(row)) continue;
    rows[way] = -1;
    ++dropped;
  }
  return dropped;
}

// One CTA: begins a call. Drops rows that have changed.
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
  uint32_t dropped = 0;
  if (changes - known < changes_kept) {
    for (uint64_t change = known + threadIdx.x; change < changes; change += blockDim.x) {
      const auto row = static_cast<uint32_t>(device::load_relaxed(call.changed_rows + change % changes_kept));
      dropped += drop_row(sets, row);
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
  add_sum(&words.counters.dropped, dropped);
  __syncthreads();
  if (threadIdx.x != 0) return;
  words.reads = words.copies = words.absent = words.fills = words.retries = 0;
  if (++words.call == 0) words.call = 1;
}

// Where the row of a lane is.
struct FoundRow {
  int32_t way;    // -1: not in the cache
  bool has_room;  // its set has a way without a row
};
// All lanes of a warp call it. Four lanes load a set: a load of as many lines as there are lanes takes four times as
// long as one of eight.
__device__ inline FoundRow find_row(const CacheSets& sets, uint32_t row) {
  constexpr uint32_t lanes_of_set = cache_ways / 4, sets_at_a_time = 32 / lanes_of_set;
  const auto lane = static_cast<uint32_t>(device::lane_id());
  const uint32_t set = set_of(sets, row);
  uint4 four[lanes_of_set];
#pragma unroll
  for (uint32_t i = 0; i < lanes_of_set; ++i) {
    const uint32_t from = i * sets_at_a_time + lane / lanes_of_set;
    const uint32_t its_set = __shfl_sync(device::all_lanes, set, static_cast<int>(from));
    four[i] = reinterpret_cast<const uint4*>(sets.rows)[its_set * lanes_of_set + lane % lanes_of_set];
  }
  FoundRow found = {-1, false};
  const uint32_t first_lane = lane % sets_at_a_time * lanes_of_set;  // of those that load this lane's set
#pragma unroll
  for (uint32_t i = 0; i < lanes_of_set; ++i) {
    const uint32_t from = i * sets_at_a_time + lane / lanes_of_set;
    const uint32_t its_row = __shfl_sync(device::all_lanes, row, static_cast<int>(from));
    const uint4 held = four[i];
    const uint32_t place = held.x == its_row ? 0 : held.y == its_row ? 1 : held.z == its_row ? 2 : 3;
    const bool is_equal = held.x == its_row || held.y == its_row || held.z == its_row || held.w == its_row;
    // Only ways without a row are negative.
    const bool is_free = static_cast<int32_t>(held.x | held.y | held.z | held.w) < 0;
    const uint32_t equal = __ballot_sync(device::all_lanes, is_equal) >> first_lane & 0xf;
    const uint32_t free = __ballot_sync(device::all_lanes, is_free) >> first_lane & 0xf;
    // Of all four lanes only one has the row.
    const uint32_t part = device::highest_bit(equal) % lanes_of_set;
    const uint32_t its_place = __shfl_sync(device::all_lanes, place, static_cast<int>(first_lane + part));
    const bool is_own = lane / sets_at_a_time == i;
    if (is_own && equal != 0) found.way = static_cast<int32_t>(set * cache_ways + part * 4 + its_place);
    found.has_room = is_own ? free != 0 : found.has_room;
  }
  return found;
}

// Finds the rows of the call. Of several positions with one row in the cache, the first one to get here reads it. A
// warp takes entries that follow each other, so that those that are read stay almost in order.
__device__ inline void look_up_rows(const CacheCall& call) {
  constexpr uint32_t at_a_time = 4;
  const CacheSets& sets = call.sets;
  const uint64_t row_count = state_of(call).row_count;
  const uint32_t number = call.words->call;
  const bool evicts = may_evict(call);
  uint32_t hits = 0, misses = 0;
  for (GridRange range; range.has_round(call.count, at_a_time); range.next()) {
    uint64_t entries[at_a_time];
    FoundRow found[at_a_time];
    uint32_t exists = 0;  // bits by entry, as in the following
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) {
      const uint64_t at = range.of_warp(i, at_a_time);
      entries[i] = at < call.count ? entry_at(call, at) : no_entry;
      if (entry_number(entries[i]) < row_count) exists |= 1u << i;
    }
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) found[i] = find_row(sets, entry_number(entries[i]));
    // Loads and exchanges of all entries are on their way at the same time.
    uint32_t stamps[at_a_time];
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) {
      if ((exists >> i & 1) == 0) found[i].way = -1;
      stamps[i] = found[i].way >= 0 ? *static_cast<volatile uint32_t*>(sets.stamps + found[i].way) : number;
    }
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i)
      if (stamps[i] != number) stamps[i] = atomicExch(&sets.stamps[found[i].way], number);
    uint32_t is_read = 0, is_copy = 0, is_absent = 0;
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) {
      const uint32_t position = entry_position(entries[i]), bit = 1u << i;
      if (entries[i] == no_entry) continue;
      if (found[i].way >= 0) {
        ++hits;
        const bool is_first = stamps[i] != number;
        if (is_first) sets.firsts[found[i].way] = position;
        (is_first ? is_read : is_copy) |= bit;
        entries[i] = entry_of(cached_row + static_cast<uint32_t>(found[i].way), position);
      } else {
        is_read |= bit;
        if ((exists & bit) == 0) {
          entries[i] = entry_of(no_row, position);
        } else {
          ++misses;
          call.fill_ways[position] = -1;
          if (evicts || found[i].has_room) is_absent |= bit;
        }
      }
    }
    CacheWords& words = *call.words;
    uint32_t* const lengths[] = {&words.reads, &words.copies, &words.absent};
    uint32_t places[3][at_a_time];
    find_places(lengths, {is_read, is_copy, is_absent}, places);
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i) {
      if ((is_read >> i & 1) != 0) call.reads[places[0][i]] = entries[i];
      if ((is_copy >> i & 1) != 0) call.copies[places[1][i]] = entries[i];
      if ((is_absent >> i & 1) != 0) call.absent[places[2][i]] = places[0][i];
    }
  }
  add_sum(&call.words->counters.hits, hits);
  add_sum(&call.words->counters.misses, misses);
}

// Chooses a way for a row that is not in the cache, under the lock of its set. Returns -1 if it gets none.
__device__ inline int32_t choose_way(const CacheCall& call, uint32_t set, uint32_t row, uint32_t* filled,
                                     uint32_t* evicted) {
  const CacheSets& sets = call.sets;
  const uint32_t number = call.words->call;
  const bool evicts = may_evict(call);
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
    if (held[way] == -1)
      score = ~0u;
    else if (evicts)
      score = number - used[way];
    if (score > best) {
      best = score;
      chosen = static_cast<int32_t>(way);
    }
  }
  if (own >= 0) return static_cast<int32_t>(set * cache_ways) + own;
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
  const bool evicts = may_evict(call);
  int32_t way = -1;
  bool is_done = false;
  // Other threads, also of this warp, may hold the lock for a while.
  for (uint32_t attempt = 0; attempt < 1 << 16 && !is_done; ++attempt) {
    // Another thread may have admitted the same row. In most calls, sets whose rows stay are full.
    bool has_room = evicts;
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
  const uint32_t absent = words.absent;
  uint32_t fills = 0, evictions = 0;
  for (GridRange range; range.has_round(absent); range.next()) {
    uint32_t filled = 0;
    int32_t way = -1;
    if (range.at < absent) {
      const uint64_t entry = call.reads[call.absent[range.at]];
      way = admit_row(call, entry_number(entry), &filled, &evictions);
      call.fill_ways[entry_position(entry)] = way;
      if (filled != 0) call.sets.firsts[way] = entry_position(entry);
    }
    append(call.fills, &words.fills, filled != 0, way);
    fills += filled;
  }
  add_sum(&words.counters.fills, fills);
  add_sum(&words.counters.evictions, evictions);
}

// Of several positions with one row that has been admitted, one reads it.
__device__ inline void divide_admitted_rows(const CacheCall& call) {
  CacheWords& words = *call.words;
  const uint32_t absent = words.absent;
  for (GridRange range; range.has_round(absent); range.next()) {
    uint64_t entry = no_entry;
    bool is_copy = false;
    if (range.at < absent) {
      uint64_t& read = call.reads[call.absent[range.at]];
      const uint32_t position = entry_position(read);
      const int32_t way = call.fill_ways[position];
      is_copy = way >= 0 && call.sets.firsts[way] != position;
      if (is_copy) {
        read = no_entry;
        entry = entry_of(cached_row + static_cast<uint32_t>(way), position);
      }
    }
    append(call.copies, &words.copies, is_copy, entry);
  }
}

}  // namespace narrowcast::store::cuda
