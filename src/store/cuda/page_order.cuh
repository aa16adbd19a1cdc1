// Device code of order.cu: sorts indices by the page of the table that each is in, by counting.
#pragma once

#include <cstdint>

#include "../../device/ptx/stream_order.cuh"
#include "../../device/warp.cuh"
#include "gather_arguments.h"
#include "order_arguments.h"

namespace narrowcast::store::cuda {

// The row of an index.
template <typename Index>
__device__ inline uint32_t row_of(Index index) {
  return static_cast<uint32_t>(min(static_cast<uint64_t>(int64_t{index}), max_ordered_rows));
}
// The page of a row: the last page for indices that are out of range.
__device__ inline uint32_t page_of(const OrderArguments& arguments, uint32_t row) {
  return min(row >> arguments.pages.shift, arguments.pages.count - 1);
}

// The indices of this CTA: as many as the others have, and fewer at the end.
struct OrderShare {
  uint64_t first, end;
  __device__ explicit OrderShare(const OrderArguments& arguments) {
    const uint64_t each = (arguments.count + gridDim.x - 1) / gridDim.x;
    first = min(blockIdx.x * each, arguments.count);
    end = min(first + each, arguments.count);
  }
};

// A thread's indices of a tile are order_threads apart.
constexpr uint32_t in_tile(uint32_t i) { return i * order_threads; }

// Loads the rows of a thread's indices from `first` on; any row beyond `end`.
template <uint32_t each, typename Index>
__device__ __forceinline__ void load_rows(const Index* indices, uint64_t first, uint64_t end, uint32_t (&rows)[each]) {
  constexpr uint32_t at_a_time = 8;  // loads come before their use, or the compiler would wait for each
  const auto last = static_cast<uint32_t>(min(end - first, uint64_t{each * order_threads})) - 1;
#pragma unroll
  for (uint32_t done = 0; done < each; done += at_a_time) {
    Index loaded[at_a_time];
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i)
      if (done + i < each) loaded[i] = indices[first + min(threadIdx.x + in_tile(done + i), last)];
#pragma unroll
    for (uint32_t i = 0; i < at_a_time; ++i)
      if (done + i < each) rows[done + i] = row_of(loaded[i]);
  }
}
template <uint32_t each>
__device__ __forceinline__ void load_rows(const OrderArguments& arguments, uint64_t first, uint64_t end,
                                          uint32_t (&rows)[each]) {
  if (first >= end) return;
  if (arguments.index_bytes == 8)
    load_rows(static_cast<const int64_t*>(arguments.indices), first, end, rows);
  else
    load_rows(static_cast<const int32_t*>(arguments.indices), first, end, rows);
}
// Calls use(i) for this thread's indices of a tile of `count` indices.
template <uint32_t each, typename Use>
__device__ __forceinline__ void for_indices_of_thread(uint64_t count, Use&& use) {
  if (count >= each * order_threads) {
#pragma unroll
    for (uint32_t i = 0; i < each; ++i) use(i);
  } else {
#pragma unroll
    for (uint32_t i = 0; i < each; ++i)
      if (threadIdx.x + in_tile(i) < static_cast<uint32_t>(count)) use(i);
  }
}

// Calls use(i, page) for the pages that a thread looks after.
template <typename Use>
__device__ __forceinline__ void for_pages_of_thread(uint32_t pages, Use&& use) {
#pragma unroll
  for (uint32_t i = 0; i < pages_of_thread; ++i)
    if (threadIdx.x * pages_of_thread + i < pages) use(i, threadIdx.x * pages_of_thread + i);
}

// Counts this CTA's indices in each page. counts: words_of_pages() words of shared memory.
__device__ inline void count_pages(const OrderArguments& arguments, uint32_t* counts) {
  constexpr uint32_t each = 8;
  const uint32_t pages = arguments.pages.count;
  for_pages_of_thread(pages, [&](uint32_t, uint32_t page) { counts[page] = 0; });
  __syncthreads();
  const OrderShare share(arguments);
  for (uint64_t first = share.first; first < share.end; first += each * order_threads) {
    uint32_t rows[each];
    load_rows(arguments, first, share.end, rows);
    for_indices_of_thread<each>(share.end - first,
                                [&](uint32_t i) { atomicAdd(&counts[page_of(arguments, rows[i])], 1u); });
  }
  __syncthreads();
  uint32_t* const own = arguments.counts + blockIdx.x * pages;
  for_pages_of_thread(pages, [&](uint32_t, uint32_t page) { own[page] = counts[page]; });
}

// The sum of the values of the threads before this one. sums: a word for each warp.
__device__ inline uint32_t sum_before(uint32_t value, uint32_t* sums) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, up_to = device::inclusive_scan(value);
  if (lane == 31) sums[warp] = up_to;
  __syncthreads();
  uint32_t before = up_to - value;
  for (uint32_t i = 0; i < warp; ++i) before += sums[i];
  return before;
}

// Writes the entries of this CTA's indices to their places, when as many CTAs have counted. Those of a tile of `each`
// indices of each thread are ordered in shared memory first, so that entries of a page are stored together: a store of
// one entry takes longer than one of a whole sector. shared: order_shared_bytes().
template <uint32_t each>
__device__ inline void place_entries(const OrderArguments& arguments, uint64_t* shared) {
  constexpr uint32_t tile = each * order_threads;
  static_assert(tile <= 65536, "ranks have 16 bits");
  const uint32_t pages = arguments.pages.count;
  uint64_t* const ordered = shared;
  auto* const words = reinterpret_cast<uint32_t*>(shared + tile);  // of pages
  uint32_t* const sums = words + words_of_pages(arguments.pages);
  // The kernel before the counting one has ended, so the indices are there.
  const OrderShare share(arguments);
  uint32_t rows[each];
  load_rows(arguments, share.first, share.end, rows);
  device::wait_for_stream();

  // Where the next entries of this thread's pages go. Every CTA sums the counts for itself; those of a page are in the
  // order of the CTAs.
  uint32_t next[pages_of_thread] = {}, of_page[pages_of_thread] = {}, sum = 0;
#pragma unroll 4
  for (uint32_t cta = 0; cta < gridDim.x; ++cta)
    for_pages_of_thread(pages, [&](uint32_t i, uint32_t page) {
      const uint32_t count = arguments.counts[cta * pages + page];
      of_page[i] += count;
      next[i] += cta < blockIdx.x ? count : 0;
      sum += count;
    });
  uint32_t before = sum_before(sum, sums);
  for_pages_of_thread(pages, [&](uint32_t i, uint32_t) {
    next[i] += before;
    before += of_page[i];
  });

  for (uint64_t first = share.first; first < share.end; first += tile) {
    const uint64_t left = share.end - first;
    for_pages_of_thread(pages, [&](uint32_t, uint32_t page) { words[page] = 0; });
    __syncthreads();
    uint32_t ranks[(each + 1) / 2] = {};  // among the entries of the page in this tile, 16 bits each
    for_indices_of_thread<each>(
        left, [&](uint32_t i) { ranks[i / 2] |= atomicAdd(&words[page_of(arguments, rows[i])], 1u) << i % 2 * 16; });
    __syncthreads();
    uint32_t of_tile[pages_of_thread], all = 0;
    for_pages_of_thread(pages, [&](uint32_t i, uint32_t page) { all += of_tile[i] = words[page]; });
    uint32_t at = sum_before(all, sums), moves[pages_of_thread];
    for_pages_of_thread(pages, [&](uint32_t i, uint32_t page) {
      words[page] = at;
      moves[i] = next[i] - at;
      at += of_tile[i];
      next[i] += of_tile[i];
    });
    __syncthreads();
    const uint32_t position = static_cast<uint32_t>(first) + threadIdx.x;
    for_indices_of_thread<each>(left, [&](uint32_t i) {
      ordered[words[page_of(arguments, rows[i])] + (ranks[i / 2] >> i % 2 * 16 & 0xffff)] =
          entry_of(rows[i], position + in_tile(i));
    });
    __syncthreads();
    // What leads from the place of an entry in the tile to its place in the output.
    for_pages_of_thread(pages, [&](uint32_t i, uint32_t page) { words[page] = moves[i]; });
    __syncthreads();
    load_rows(arguments, first + tile, share.end, rows);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < min(left, uint64_t{tile}); i += order_threads) {
      const uint64_t entry = ordered[i];
      arguments.entries[words[page_of(arguments, entry_number(entry))] + i] = entry;
    }
    __syncthreads();
  }
}

}  // namespace narrowcast::store::cuda
