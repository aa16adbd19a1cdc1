// A cache of encoded rows in GPU memory, which belongs to a reader.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "store/cuda/cache_sets.h"

namespace narrowcast::store::cuda {

struct CacheShape {
  CachePolicy policy;
  uint64_t bytes;       // of device memory, at most; at least those of a set
  uint64_t slot_bytes;  // of a payload; longer ones are not cached
  uint64_t part_bytes;  // 16, 4 or 1: divides the addresses of payloads in host memory, and slot_bytes
  uint64_t max_rows;    // of a call
};

// Calls follow each other, as those of a reader. They allocate nothing and can be captured.
class RowCache {
 public:
  RowCache() = default;
  ~RowCache();
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  // The bytes of a set.
  static uint64_t set_bytes(const CacheShape& shape);
  // changes: of the table, which the cache knows.
  cudaError_t allocate(const CacheShape& shape, uint64_t changes);
  // Makes the lists of a call, of which the members about the cache are set here. The gather fills the ways of rows
  // that are admitted.
  cudaError_t look_up(const CacheCall& call, uint32_t sms, cudaStream_t stream) const;
  // Admits the rows of a call, and fetches them.
  cudaError_t fill(const CacheCall& call, uint32_t sms, cudaStream_t stream) const;
  // Makes the copies, when the other rows are in the output, whose rows are multiples of unit_bytes apart.
  cudaError_t copy(const CacheCall& call, uint32_t unit_bytes, uint32_t sms, cudaStream_t stream) const;

  const CacheSets& sets() const { return sets_; }
  uint64_t ways() const { return uint64_t{sets_.count} * cache_ways; }
  uint64_t bytes() const { return bytes_; }
  uint64_t part_bytes() const { return part_bytes_; }
  CacheWords* words() const { return words_; }
  const uint64_t* reads() const { return reads_; }
  const int32_t* fill_ways() const { return fill_ways_; }
  uint64_t* retries() const { return retries_; }
  // Waits for `stream`, and adds the counters to `sums`.
  cudaError_t counters(CacheCounters* sums, cudaStream_t stream) const;
  // Waits for `stream`, and sets the counters of misses to 0.
  cudaError_t forget_misses(cudaStream_t stream);
  // Waits for `stream` and counts the rows in the cache.
  cudaError_t rows(uint64_t* rows, cudaStream_t stream) const;

 private:
  cudaError_t find(const CacheCall& call, uint32_t sms, cudaStream_t stream) const;
  template <typename T>
  cudaError_t allocate(T** pointer, uint64_t count, int byte);
  cudaError_t launch(void (*kernel)(CacheCall), uint64_t items, CacheCall call, uint32_t sms,
                     cudaStream_t stream) const;

  CacheSets sets_ = {};
  CacheWords* words_ = nullptr;
  uint64_t bytes_ = 0, part_bytes_ = 0;
  uint64_t *reads_ = nullptr, *copies_ = nullptr, *retries_ = nullptr;
  uint32_t* absent_ = nullptr;
  int32_t *fill_ways_ = nullptr, *fills_ = nullptr;
};

}  // namespace narrowcast::store::cuda
