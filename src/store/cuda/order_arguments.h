// The arguments of the kernels that order rows: plain structs, shared by host and device code.
#pragma once

#include <algorithm>
#include <cstdint>

namespace narrowcast::store::cuda {

// Rows are ordered by page: row >> shift. Neighbouring rows of large tables share address translations, which otherwise
// limit the rate of random rows (docs/design/store_kernels.md).
struct Pages {
  uint32_t shift;
  uint32_t count;  // 1 to max_pages; indices that are out of range count as the last page
};
inline constexpr uint32_t max_pages = 4096;
// Rows that entries have numbers for. Indices that are out of range become this one.
inline constexpr uint64_t max_ordered_rows = UINT32_MAX;

// Pages of at least `page_rows` rows, for a table of `rows` rows.
constexpr Pages pages_of(uint64_t rows, uint64_t page_rows) {
  uint32_t shift = 0;
  while (uint64_t{1} << (shift + 1) <= page_rows || rows >> shift >= max_pages) ++shift;
  return {shift, static_cast<uint32_t>(rows >> shift) + 1};
}

// Two kernels of as many CTAs first count the indices of each page, then place them. A CTA has those that follow each
// other, at least as many as this unless there are fewer.
inline constexpr uint32_t order_threads = 1024, order_share = 4 * order_threads;
// More CTAs than this would take longer to sum up what all of them have counted than they save.
inline constexpr uint32_t max_order_ctas = 64;

constexpr uint32_t order_ctas(uint64_t count, uint32_t sms) {
  return static_cast<uint32_t>(
      std::min<uint64_t>((count + order_share - 1) / order_share, std::min(sms, max_order_ctas)));
}

// Indices of a thread at a time: those of all threads are ordered in shared memory, which has room for more on newer
// GPUs.
inline constexpr uint32_t few_ordered = 8, many_ordered = 26;
// Each thread looks after pages that follow each other. The compiler loads their words in shared memory together,
// whether or not there are as many pages: what other threads write must not be among them.
inline constexpr uint32_t pages_of_thread = max_pages / order_threads;
constexpr uint32_t words_of_pages(const Pages& pages) {
  return (pages.count + pages_of_thread - 1) / pages_of_thread * pages_of_thread;
}
// Shared memory: entries, the words of the pages, and one for each warp.
constexpr uint32_t order_shared_bytes(const Pages& pages, uint32_t of_thread) {
  return of_thread * order_threads * uint32_t{sizeof(uint64_t)} +
         (words_of_pages(pages) + order_threads / 32) * uint32_t{sizeof(uint32_t)};
}

struct OrderArguments {
  const void* indices;  // device memory
  uint32_t index_bytes;
  uint64_t count;
  Pages pages;
  uint64_t* entries;  // the result (Selection::entries)
  uint32_t* counts;   // a word for each page and CTA
};

}  // namespace narrowcast::store::cuda
