// Reads tables of the layout blocks on the GPU, in stream order: the copy engine moves frames, and the codec's kernels
// decode them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "narrowcast/cuda.h"
#include "store/cuda/copy_ring.h"
#include "store/cuda/frame_batch.h"
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

// As Reader. A damaged frame yields unspecified values, and is reported by is_damaged().
class FrameReader {
 public:
  static ncast_status create(const FrameTable& table, uint32_t sms, std::unique_ptr<FrameReader>* reader);
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // out[i] = row first + i * step, or rows[i] if it is not NULL. All rows must exist.
  ncast_status read(const char* function, const RowList& rows, uint64_t count, const RowTarget& target);
  // Bytes of frames that were copied.
  uint64_t fetched_bytes() const { return fetched_bytes_; }
  // Waits for `stream`. Whether a frame could not be decoded since the last call.
  ncast_status take_damage(const char* function, bool* is_damaged, cudaStream_t stream);

 private:
  FrameReader() = default;
  ncast_status set_up(const FrameTable& table, uint32_t sms);
  // Reads bytes of the flattened tensor.
  ncast_status read_range(uint64_t begin, uint64_t end, char* out, const RowTarget& target);
  // Decode one frame, and those before `end` together. `encoded`: where the first one was copied.
  ncast_status decode(uint64_t frame, const char* encoded, void* values, const RowTarget& target);
  ncast_status decode_batch(uint64_t frame, uint64_t end, const char* encoded, char* values, const RowTarget& target);

  uint64_t frame_bytes() const { return table_.frame_elems * value_bytes_; }
  uint64_t elems_of(uint64_t frame) const;

  FrameTable table_ = {};
  uint64_t value_bytes_ = 0, longest_ = 0;
  uint32_t sms_ = 0;
  uint64_t fetched_bytes_ = 0;
  CopyRing ring_;
  FrameDecoder decoder_;
  char* values_ = nullptr;      // of a frame that is needed in part
  uint64_t held_ = UINT64_MAX;  // the frame whose values are there, in the current call
  ncast_device_status* status_ = nullptr;
};

}  // namespace narrowcast::store::cuda
