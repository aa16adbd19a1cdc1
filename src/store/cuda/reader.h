// Reads rows of a table on the GPU, in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "narrowcast/types.h"
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
  bool keeps_order;   // rows are read in the order of their indices; for measurements
};

// The indices of a gather: signed integers of 4 or 8 bytes.
struct Indices {
  const void* data;
  uint32_t index_bytes;
  uint64_t count;
  bool on_host;  // false: in device memory
};

// Where decoded rows go.
struct RowTarget {
  void* out;        // device memory, aligned to an element
  uint64_t stride;  // bytes, a multiple of an element, at least those of a row
  uint32_t sms;     // for the call; 0: those of the reader
  cudaStream_t stream;
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
  // Waits for `stream`, and returns the sums since the reader was created.
  ncast_status counters(const char* function, GatherCounters* counters, cudaStream_t stream);

 private:
  Reader() = default;

  static constexpr uint64_t chunk_bytes = 2 << 20;  // that the copy engine moves at a time

  ncast_status set_up(const ReaderTable& table, const ReaderOptions& options);
  // Copies the offsets of rows that were appended since the last call.
  cudaError_t learn_rows(uint64_t rows, cudaStream_t stream);
  cudaError_t start(cudaStream_t stream);
  GatherArguments arguments(void* out, uint64_t out_stride) const;
  uint32_t sms_of(const RowTarget& target) const;
  cudaError_t gather_piece(const void* indices, uint32_t index_bytes, uint64_t count, char* out,
                           const RowTarget& target);
  cudaError_t fetch_by_copy_engine(uint64_t first, uint64_t count, const RowTarget& target);

  ReaderTable table_ = {};
  RowFormat format_ = {};
  TableWords words_ = {};
  GatherKernel kernel_ = {};
  GatherArguments base_ = {};  // all but the selection
  uint32_t sms_ = 0, machine_sms_ = 0;
  uint64_t max_rows_ = 0;
  bool is_ordered_ = false;
  PageOrder order_ = {};
  size_t order_bytes_ = 0;
  IndexCopies index_copies_;
  CopyRing ring_;

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
