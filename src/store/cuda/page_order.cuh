// Device code of order.cu: sorts indices by the page of the table that each is in, by counting.
#pragma once

#include <cstdint>

#include "../../device/warp.cuh"
#include "gather_arguments.h"
#include "order_arguments.h"

namespace narrowcast::store::cuda {

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

// Calls use(row, position) for the indices of this CTA: every gridDim.x-th tile. Those of a tile are loaded first.
template <typename Use>
__device__ inline void for_rows_of_cta(const OrderArguments& arguments, Use&& use) {
  constexpr uint32_t each = order_tile / order_threads;
  const uint64_t apart = uint64_t{gridDim.x} * order_tile;
  for (uint64_t first = uint64_t{blockIdx.x} * order_tile + threadIdx.x; first < arguments.count; first += apart) {
    uint32_t row[each];
#pragma unroll
    for (uint32_t i = 0; i < each; ++i)
      if (first + i * order_threads < arguments.count) row[i] = row_at(arguments, first + i * order_threads);
#pragma unroll
    for (uint32_t i = 0; i < each; ++i)
      if (first + i * order_threads < arguments.count) use(row[i], static_cast<uint32_t>(first + i * order_threads));
  }
}

// Counts this CTA's indices in each page. shared: one word for each page.
__device__ inline void count_pages(const OrderArguments& arguments, uint32_t* shared) {
  const uint32_t pages = arguments.pages.count;
  for (uint32_t page = threadIdx.x; page < pages; page += order_threads) shared[page] = 0;
  __syncthreads();
  for_rows_of_cta(arguments, [&](uint32_t row, uint32_t) { atomicAdd(&shared[page_of(arguments, row)], 1u); });
  __syncthreads();
  uint32_t* const own = arguments.counts + uint64_t{blockIdx.x} * pages;
  for (uint32_t page = threadIdx.x; page < pages; page += order_threads) own[page] = shared[page];
}

// Writes the entries of this CTA's indices to their places, when as many CTAs have counted. shared: one word for each
// page and 32 more.
__device__ inline void place_entries(const OrderArguments& arguments, uint32_t* shared) {
  constexpr uint32_t each = max_pages / order_threads;
  const uint32_t pages = arguments.pages.count, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t* const next = shared;          // where the next entry of a page goes
  uint32_t* const sums = shared + pages;  // of the warps
  // Every CTA sums the counts for itself. The entries of a page follow each other by CTA.
  uint32_t of_page[each] = {}, of_ctas_before[each] = {}, sum = 0;
#pragma unroll 4
  for (uint32_t cta = 0; cta < gridDim.x; ++cta) {
#pragma unroll
    for (uint32_t i = 0; i < each; ++i) {
      const uint32_t page = threadIdx.x * each + i;
      const uint32_t count = page < pages ? arguments.counts[uint64_t{cta} * pages + page] : 0;
      of_page[i] += count;
      of_ctas_before[i] += cta < blockIdx.x ? count : 0;
      sum += count;
    }
  }
  const uint32_t up_to = device::inclusive_scan(sum);
  if (lane == 31) sums[warp] = up_to;
  __syncthreads();
  uint32_t before = up_to - sum;
  for (uint32_t i = 0; i < warp; ++i) before += sums[i];
#pragma unroll
  for (uint32_t i = 0; i < each; ++i) {
    if (threadIdx.x * each + i < pages) next[threadIdx.x * each + i] = before + of_ctas_before[i];
    before += of_page[i];
  }
  __syncthreads();
  for_rows_of_cta(arguments, [&](uint32_t row, uint32_t position) {
    arguments.entries[atomicAdd(&next[page_of(arguments, row)], 1u)] = entry_of(row, position);
  });
}

}  // namespace narrowcast::store::cuda
