// Reads rows of a table on the GPU, in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "narrowcast/types.h"
#include "store/cuda/cache.h"
#include "store/cuda/copy_ring.h"
#include "store/cuda/index_copies.h"
#include "store/cuda/launch.h"
#include "store/cuda/order.h"
#include "store/cuda/reader_table.h"

namespace narrowcast::store::cuda {

inline constexpr uint32_t default_sms = 4;
inline constexpr uint64_t default_max_rows = 65536;

struct ReaderOptions {
  uint64_t max_rows;  // of a piece of a gather, less than 2^32; 0: default_max_rows
  uint32_t sms;       // 0: default_sms
};

// The indices of a gather: signed integers of 4 or 8 bytes.
struct Indices {
  const void* data;
  uint32_t index_bytes;
  uint64_t count;
  bool on_host;   // false: in device memory
  bool in_order;  // rows are read in this order
};

// Where decoded rows go.
struct RowTarget {
  void* out;        // device memory, aligned to an element
  uint64_t stride;  // bytes, a multiple of an element, at least those of a row
  uint32_t sms;     // for the call; 0: those of the reader
  cudaStream_t stream;
};

struct CacheOptions {
  CachePolicy policy;
  uint64_t bytes;       // of GPU memory, at most
  uint64_t slot_bytes;  // of a payload: longer ones are not cached
};

// Device memory, events and streams of a reader, and what it knows of its table. Its calls must follow each other: on
// one stream, or ordered by the caller. They allocate nothing, and can be captured unless indices are on the host.
class Reader {
 public:
  // The table's memory must stay registered as long as the reader exists. The model is only used here.
  static ncast_status create(const ReaderTable& table, const ReaderOptions& options, std::unique_ptr<Reader>* reader);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // out[i] = row indices[i]. An index in device memory that is out of range gives zeros and is counted; those on the
  // host have been checked. rows: the number of rows of the table now.
  ncast_status gather(const Indices& indices, uint64_t rows, const RowTarget& target);
  // out[i] = row first + i * step. All rows must exist.
  ncast_status fetch(uint64_t first, uint64_t count, int64_t step, uint64_t rows, const RowTarget& target);
  // Gathers use a cache of encoded rows from now on. It is filled with `warm`: rows in host memory, which may include
  // some that do not exist; without any, with the first rows of the table if the policy is `fixed`. Waits for `stream`.
  // After an error the reader has the cache that it had before.
  ncast_status set_cache(const CacheOptions& options, const Indices& warm, uint64_t rows, cudaStream_t stream);
  ncast_status remove_cache(const char* function, cudaStream_t stream);
  // Waits for `stream`. Of all caches so far.
  ncast_status cache_counters(const char* function, CacheCounters* counters, cudaStream_t stream);
  const RowCache* cache() const { return cache_.get(); }

  // Waits for `stream`, and returns the sums since the reader was created.
  ncast_status counters(const char* function, GatherCounters* counters, cudaStream_t stream);

 private:
  Reader() = default;

  // is_staged: for copies of slots in device memory, instead of slots in host memory or in a cache.
  GatherShape shape_of(uint64_t slot_bytes, uint64_t slot_alignment, bool is_staged, bool has_cache) const;

  ncast_status set_up(const ReaderTable& table, const ReaderOptions& options);
  // Parts of it. The addresses of the table's memory on the GPU; those of what its writer changes; and copies.
  cudaError_t map_rows();
  cudaError_t follow_updates();
  cudaError_t copy_offsets();
  cudaError_t copy_masks(const Model& model);
  // Copies the offsets of rows that were appended since the last call.
  cudaError_t learn_rows(uint64_t rows, cudaStream_t stream);
  cudaError_t start(cudaStream_t stream);
  GatherArguments arguments(void* out, uint64_t out_stride) const;
  uint32_t sms_of(const RowTarget& target) const;
  cudaError_t gather_piece(const Indices& indices, char* out, const RowTarget& target);
  CacheCall cache_call() const;
  cudaError_t gather_cached(const GatherArguments& call, const RowTarget& target);
  cudaError_t warm_cache(const Indices& warm, uint64_t first_rows, cudaStream_t stream);
  cudaError_t fill_cache(const CacheCall& call, cudaStream_t stream);
  cudaError_t fetch_by_copy_engine(uint64_t first, uint64_t count, const RowTarget& target);

  ReaderTable table_ = {};
  RowFormat format_ = {};
  TableWords words_ = {};
  const uint64_t *changes_ = nullptr, *changed_rows_ = nullptr;
  GatherKernel kernel_ = {};
  GatherArguments base_ = {};  // all but the selection
  uint32_t sms_ = 0;
  GatherMachine machine_ = {};
  uint64_t longest_chunk_ = 0;  // bytes that a buffer of the ring has room for
  uint64_t max_rows_ = 0, most_bytes_ = 0;
  bool is_ordered_ = false;
  Pages pages_ = {};
  IndexCopies index_copies_;
  CopyRing ring_;
  std::unique_ptr<RowCache> cache_;
  CacheCounters past_ = {};  // of caches that were replaced
  GatherShape cached_shape_ = {}, staged_shape_ = {};

  // Device memory.
  struct Words {
    GatherCounters counters;
    TableState state;
    unsigned long long calls;
    uint32_t ended_ctas;
  };
  Words* device_words_ = nullptr;
  uint32_t* offsets_ = nullptr;
  char* masks_ = nullptr;
  char* order_workspace_ = nullptr;
};

}  // namespace narrowcast::store::cuda
