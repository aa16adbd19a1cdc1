// Device code of order.cu: sorts indices by the page of the table that each is in, by counting.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "gather_arguments.h"
#include "order_arguments.h"

namespace narrowcast::store::cuda {

inline constexpr uint32_t order_threads = 1024, order_tile = 4 * order_threads;  // of a CTA: threads, indices

// The row at a position.
__device__ inline uint32_t row_at(const OrderArguments& arguments, uint64_t position) {
  const uint64_t index = arguments.index_bytes == 8
                             ? static_cast<const uint64_t*>(arguments.indices)[position]
                             : static_cast<uint64_t>(int64_t{static_cast<const int32_t*>(arguments.indices)[position]});
  return static_cast<uint32_t>(min(index, max_ordered_rows));
}
// The page of a row: the last page for indices that are out of range.
__device__ inline uint32_t page_of(const OrderArguments& arguments, uint32_t row) {
  return min(row >> arguments.pages.shift, arguments.pages.count - 1);
}

// Adds the number of this CTA's indices in each page to `counts`. shared: one word for each page.
__device__ inline void count_pages(const OrderArguments& arguments, uint32_t* shared) {
  const uint32_t pages = arguments.pages.count;
  for (uint32_t page = threadIdx.x; page < pages; page += order_threads) shared[page] = 0;
  __syncthreads();
  const uint64_t first = uint64_t{blockIdx.x} * order_tile, end = min(first + order_tile, arguments.count);
  for (uint64_t i = first + threadIdx.x; i < end; i += order_threads)
    atomicAdd(&shared[page_of(arguments, row_at(arguments, i))], 1u);
  __syncthreads();
  for (uint32_t page = threadIdx.x; page < pages; page += order_threads)
    if (shared[page] != 0) atomicAdd(&arguments.counts[page], shared[page]);
}

// Writes the entries of this CTA's indices to their places, when all CTAs have counted. shared: two words
// for each page and 32 more.
__device__ inline void place_entries(const OrderArguments& arguments, uint32_t* shared) {
  const uint32_t pages = arguments.pages.count, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t* const own = shared;            // indices of this CTA by page
  uint32_t* const begin = shared + pages;  // where those of a page begin
  uint32_t* const sums = begin + pages;    // of the warps
  uint32_t* const taken = arguments.counts + pages;
  // Every CTA sums the counts for itself.
  const uint32_t each = (pages + order_threads - 1) / order_threads, mine = threadIdx.x * each;
  uint32_t sum = 0;
  for (uint32_t page = mine; page < min(mine + each, pages); ++page) sum += arguments.counts[page];
  const uint32_t up_to = device::inclusive_scan(sum);
  if (lane == 31) sums[warp] = up_to;
  __syncthreads();
  uint32_t before = up_to - sum;
  for (uint32_t i = 0; i < warp; ++i) before += sums[i];
  for (uint32_t page = mine; page < min(mine + each, pages); ++page) {
    own[page] = 0;
    begin[page] = before;
    before += arguments.counts[page];
  }
  __syncthreads();
  const uint64_t first = uint64_t{blockIdx.x} * order_tile + threadIdx.x;
  constexpr uint32_t most = order_tile / order_threads;
  uint32_t row[most], page[most], place[most];
#pragma unroll
  for (uint32_t i = 0; i < most; ++i) {
    const uint64_t position = first + i * order_threads;
    if (position >= arguments.count) continue;
    row[i] = row_at(arguments, position);
    page[i] = page_of(arguments, row[i]);
    place[i] = atomicAdd(&own[page[i]], 1u);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < pages; i += order_threads)
    if (own[i] != 0) begin[i] += atomicAdd(&taken[i], own[i]);
  __syncthreads();
#pragma unroll
  for (uint32_t i = 0; i < most; ++i) {
    const uint64_t position = first + i * order_threads;
    if (position < arguments.count)
      arguments.entries[begin[page[i]] + place[i]] = entry_of(row[i], static_cast<uint32_t>(position));
  }
}

}  // namespace narrowcast::store::cuda
