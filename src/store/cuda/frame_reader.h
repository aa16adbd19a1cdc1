// Reads tables of the layout blocks on the GPU, in stream order. A kernel decodes frames that it reads from host memory
// itself, or that the copy engine has moved.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "store/cuda/copy_ring.h"
#include "store/cuda/frame_read.h"
#include "store/cuda/reader.h"
#include "store/table/table.h"

namespace narrowcast::store::cuda {

// The frames of a table, in registered memory.
struct FrameTable {
  const uint8_t* frames;
  const uint64_t* offsets;  // of the frames, and their end
  uint64_t frame_count;
  ncast_dtype dtype;
  ncast_codec codec;
  uint64_t frame_elems;  // of all but the last frame
  uint64_t elems;        // of the table
  uint64_t row_bytes;
};

// As Reader. A damaged frame yields unspecified values, and is reported by take_found().
class FrameReader {
 public:
  static ncast_status create(const FrameTable& table, uint32_t sms, std::unique_ptr<FrameReader>* reader);
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // out[i] = row first + i * step, or rows[i] if it is not NULL. All rows must exist.
  ncast_status read(const char* function, const RowList& rows, uint64_t count, const RowTarget& target);
  // Wait for `stream`. The bytes of payloads that were read, and whether one could not be decoded since the last call.
  struct Found {
    uint64_t payload_bytes;
    bool is_damaged;
  };
  ncast_status take_found(const char* function, Found* found, cudaStream_t stream);

 private:
  FrameReader() = default;
  ncast_status set_up(const FrameTable& table, uint32_t sms);
  // Reads bytes of the flattened tensor. follows: an earlier read will not have ended yet.
  cudaError_t read_range(uint64_t begin, uint64_t end, char* out, const RowTarget& target, bool follows);
  cudaError_t read_by_copy_engine(uint64_t begin, uint64_t end, char* out, const RowTarget& target, bool follows);
  // Whether the last read of some length is enqueued, but has not ended.
  cudaError_t find_progress(bool* is_reading) const;
  // Where the payload of the block at this byte of the tensor begins in the frames, or, if it is the first one of its
  // frame, the frame; and where that of the block before ends.
  uint64_t payload_at(uint64_t byte) const;
  uint32_t sms_of(const RowTarget& target) const { return target.sms != 0 ? target.sms : sms_; }
  uint64_t frame_bytes() const { return table_.frame_elems * value_bytes_; }

  FrameTable table_ = {};
  uint64_t value_bytes_ = 0;
  uint32_t sms_ = 0;
  CopyRing ring_;
  FrameReadKernel kernel_;
  const char* mapped_ = nullptr;  // the frames on the GPU
  uint64_t longest_chunk_ = 0;    // bytes of a buffer of the ring
  cudaEvent_t ended_ = nullptr;   // the last read of some length that was not captured

  // Device memory.
  uint64_t* offsets_ = nullptr;
  FrameReadCounts* counts_ = nullptr;
};

}  // namespace narrowcast::store::cuda
