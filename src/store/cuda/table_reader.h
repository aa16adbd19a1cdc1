// A reader of an open table on one GPU: what the C API hands out.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>

#include "narrowcast/store_cuda.h"
#include "store/cuda/frame_reader.h"
#include "store/cuda/reader.h"
#include "store/table/table.h"

namespace narrowcast::store::cuda {

// Threads may call it at the same time; what they enqueue must follow each other.
class TableReader {
 public:
  // Reads `table` on the current GPU. The table must outlive the reader.
  static ncast_status create(Table& table, const ReaderOptions& options, std::unique_ptr<TableReader>* reader);
  ~TableReader();
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  ncast_status gather(const Indices& indices, const RowTarget& target);
  ncast_status fetch(uint64_t first, uint64_t count, int64_t step, const RowTarget& target);
  ncast_status counters(const char* function, ncast_store_reader_counters* counters, cudaStream_t stream);
  ncast_status check(cudaStream_t stream);
  // options: checked; NULL: no cache.
  ncast_status set_cache(const ncast_store_cache_options* options, cudaStream_t stream);
  ncast_status cache_info(const char* function, ncast_store_cache_info* info, cudaStream_t stream);

 private:
  explicit TableReader(Table& table) : table_(table) {}
  ncast_status open_rows(const ReaderOptions& options);
  ncast_status open_frames(const ReaderOptions& options);
  // Checks a file that is mapped; times_written: as of MappedFile.
  ncast_status check_file(uint64_t* times_written) const;
  ncast_status check_target(const char* function, const RowTarget& target, uint64_t count) const;
  uint64_t cache_slot_bytes(CachePolicy policy);
  ncast_status read_counters(const char* function, ncast_store_reader_counters* counters, cudaStream_t stream);

  Table& table_;
  int device_ = 0;
  std::mutex mutex_;
  std::unique_ptr<Reader> rows_;         // of layouts with payloads
  std::unique_ptr<FrameReader> frames_;  // of the layout blocks
  uint32_t context_ = max_readers;
  uint64_t times_written_ = 0;  // of a mapped file, when the reader was created
  uint64_t gathers_ = 0, fetches_ = 0, frame_rows_ = 0, damaged_frames_ = 0;
  uint64_t checked_bad_indices_ = 0, checked_damaged_rows_ = 0;  // at the last check
};

}  // namespace narrowcast::store::cuda
