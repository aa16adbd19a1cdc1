// Reads rows of a table on the GPU, in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "narrowcast/types.h"
#include "store/cuda/launch.h"
#include "store/cuda/order.h"
#include "store/cuda/reader_table.h"

namespace narrowcast::store::cuda {

inline constexpr uint32_t default_sms = 4;

struct ReaderOptions {
  uint64_t max_rows;  // of a gather; less than 2^32
  uint32_t sms;       // 0: default_sms
  bool keeps_order;   // rows are read in the order of their indices; for measurements
};

// Device memory, events and streams of a reader, and what it knows of its table. Its calls must follow each other: on
// one stream, or ordered by the caller. They allocate nothing and can be captured.
class Reader {
 public:
  // The table's memory must stay registered as long as the reader exists. The model is only used here.
  static ncast_status create(const ReaderTable& table, const ReaderOptions& options, std::unique_ptr<Reader>* reader);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // out[i] = row indices[i]. indices: device memory, signed, of 4 or 8 bytes. An index that is out of range gives zeros
  // and is counted. out: device memory, aligned to an element; out_stride: bytes, a multiple of an element.
  ncast_status gather(const void* indices, uint32_t index_bytes, uint64_t count, void* out, uint64_t out_stride,
                      cudaStream_t stream);
  // out[i] = row first + i * step. All rows must exist.
  ncast_status fetch(uint64_t first, uint64_t count, int64_t step, void* out, uint64_t out_stride, cudaStream_t stream);
  // Waits for `stream`, and returns the sums since the reader was created.
  ncast_status counters(GatherCounters* counters, cudaStream_t stream);

 private:
  Reader() = default;

  static constexpr int chunks = 3;  // of the staging ring
  static constexpr uint64_t chunk_bytes = 2 << 20;

  ncast_status set_up(const ReaderTable& table, const ReaderOptions& options);
  ncast_status check_output(const char* function, const void* out, uint64_t out_stride) const;
  cudaError_t start(cudaStream_t stream);
  GatherArguments arguments(void* out, uint64_t out_stride) const;
  cudaError_t fetch_by_copy_engine(uint64_t first, uint64_t count, char* out, uint64_t out_stride, cudaStream_t stream);

  ReaderTable table_ = {};
  RowFormat format_ = {};
  TableWords words_ = {};
  GatherKernel kernel_ = {};
  GatherArguments base_ = {};  // all but the selection
  uint32_t sms_ = 0;
  uint64_t max_rows_ = 0;
  bool is_ordered_ = false;
  PageOrder order_ = {};
  size_t order_bytes_ = 0;

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
  char* staging_ = nullptr;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t started_ = nullptr, copied_[chunks] = {}, decoded_[chunks] = {};
};

}  // namespace narrowcast::store::cuda
