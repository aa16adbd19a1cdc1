// The cache of encoded rows in GPU memory, and a call that uses it: plain structs, shared by host and device code.
#pragma once

#include <cstdint>

#include "store/cuda/gather_arguments.h"

namespace narrowcast::store::cuda {

// A row can be in any way of one set, which its number selects.
inline constexpr uint32_t cache_ways = 16;

// Rows that are put into an empty cache at a time. Those of one time compete for the ways of their sets; those that are
// wanted most come first, and almost all of them find a free way.
constexpr uint64_t warmed_at_a_time(uint64_t ways) { return (ways + 3) / 4; }

enum class CachePolicy : uint32_t {
  fixed,  // rows stay until they change
  lru,    // the row of the set that was not used for the longest time makes room
};

// In device memory.
struct CacheSets {
  CachePolicy policy;
  uint32_t count;       // of sets
  int32_t* rows;        // by way: the row whose payload is in its slot; -1: none
  uint32_t* stamps;     // by way: the call that used it last
  uint32_t* firsts;     // by way: the position of that call whose row is decoded; others are copies of it
  uint32_t* locks;      // by set: 1 while a thread chooses a way
  char* slots;          // by way: payloads, as in host memory. Only their first slot_bytes
  uint64_t slot_bytes;  // a multiple of 16 if rows are coded
};

struct CacheCounters {
  unsigned long long hits, misses;
  unsigned long long copies;     // hits that were copied from another position
  unsigned long long fills;      // rows that were put into the cache
  unsigned long long evictions;  // of other rows, to make room
  unsigned long long dropped;    // because they had changed
  unsigned long long overflows;  // hits that had to be read from host memory: their payload did not fit
  unsigned long long fetched_bytes;
};

// In device memory.
struct CacheWords {
  uint32_t call;                                   // number of the current call; never 0
  uint32_t reads, copies, absent, fills, retries;  // lengths of the lists of the call
  uint64_t changes;                                // of the table, of which the cache knows
  uint64_t known_changes;                          // the same, before the current call
  uint32_t has_redirects;                          // coder raw: some headers are not 0, as of the last of these changes
  uint32_t forgets_rows;                           // the table does not know any more which rows have changed
  CacheCounters counters;
};

// A call, and its lists in device memory, each with room for as many items as the call has rows. Lists of entries: on
// `reads`, what the gather reads, from the cache or from host memory; on `copies`, rows of the cache that are read for
// another position; on `retries`, rows that could not be decoded from the cache.
struct CacheCall {
  CacheSets sets;
  CacheWords* words;
  const void* indices;  // as in Selection
  uint32_t index_bytes;
  const uint64_t* entries;
  uint64_t first;  // without indices
  uint64_t count;
  const TableState* state;  // NULL: fixed_state
  TableState fixed_state;
  RowPlaces places;              // of the table
  const uint64_t* changes;       // of the table; host memory. NULL: it never changes
  const uint64_t* changed_rows;  // host memory
  const uint32_t* redirects;     // as in TableWords
  uint64_t *reads, *copies, *retries;
  uint32_t* absent;    // places on `reads` whose rows are not in the cache, and may be admitted
  int32_t* fill_ways;  // by position, if its row was not in the cache: the way that it has now, or -1
  int32_t* fills;      // ways to be filled
  bool may_evict;
  // For copies.
  char* out;
  uint64_t out_stride;
  uint32_t row_bytes;
};

}  // namespace narrowcast::store::cuda
