#include <algorithm>
#include <cinttypes>

#include "status/cuda_driver.h"
#include "status/error.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/frame_reader.h"
#include "store/cuda/slice_chunk.h"

namespace narrowcast::store::cuda {
namespace {

constexpr const char* creator = "ncast_store_reader_create";
constexpr uint64_t frame_alignment = 16;
// Fewer frames are decoded one by one: a batch has three kernels.
constexpr uint64_t least_batch_frames = 4;

}  // namespace

ncast_status FrameReader::create(const FrameTable& table, uint32_t sms, std::unique_ptr<FrameReader>* reader) {
  std::unique_ptr<FrameReader> created(new FrameReader);
  if (const ncast_status status = created->set_up(table, sms); status != NCAST_OK) return status;
  *reader = std::move(created);
  return NCAST_OK;
}

ncast_status FrameReader::set_up(const FrameTable& table, uint32_t sms) {
  table_ = table;
  value_bytes_ = ncast_dtype_bytes(table.dtype);
  sms_ = sms != 0 ? sms : default_sms;
  for (uint64_t i = 0; i < table.frame_count; ++i)
    longest_ = std::max(longest_, table.offsets[i + 1] - table.offsets[i]);
  RETURN_IF_CUDA_FAILED(creator, ring_.allocate(std::max(longest_, most_copied) + 2 * frame_alignment));
  RETURN_IF_CUDA_FAILED(creator, decoder_.allocate());
  RETURN_IF_CUDA_FAILED(creator, cudaMalloc(reinterpret_cast<void**>(&values_), frame_bytes()));
  RETURN_IF_CUDA_FAILED(creator, cudaMalloc(reinterpret_cast<void**>(&status_), sizeof *status_));
  RETURN_IF_CUDA_FAILED(creator, cudaMemset(status_, 0, sizeof *status_));
  RETURN_IF_CUDA_FAILED(creator, cudaDeviceSynchronize());
  return NCAST_OK;
}

FrameReader::~FrameReader() {
  cudaFree(values_);
  cudaFree(status_);
}

uint64_t FrameReader::elems_of(uint64_t frame) const {
  return std::min(table_.frame_elems, table_.elems - frame * table_.frame_elems);
}

ncast_status FrameReader::read(const char* function, const RowList& rows, uint64_t count, const RowTarget& target) {
  if (count == 0) return NCAST_OK;
  const uint64_t row_bytes = table_.row_bytes;
  auto* const out = static_cast<char*>(target.out);
  held_ = UINT64_MAX;
  RETURN_IF_CUDA_FAILED(function, ring_.begin(target.stream));
  if (rows.indices == nullptr && rows.step == 1 && target.stride == row_bytes)
    return read_range(rows.first * row_bytes, (rows.first + count) * row_bytes, out, target);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = rows[i];
    if (const ncast_status status = read_range(row * row_bytes, (row + 1) * row_bytes, out + i * target.stride, target);
        status != NCAST_OK)
      return status;
  }
  return NCAST_OK;
}

ncast_status FrameReader::read_range(uint64_t begin, uint64_t end, char* out, const RowTarget& target) {
  const char* const function = "ncast_store_reader_fetch";
  const auto copy_part = [&](uint64_t frame) {
    const uint64_t from = std::max(begin, frame * frame_bytes()), to = std::min(end, (frame + 1) * frame_bytes());
    return cudaMemcpyAsync(out + (from - begin), values_ + (from - frame * frame_bytes()), to - from,
                           cudaMemcpyDeviceToDevice, target.stream);
  };
  const auto is_whole = [&](uint64_t frame) {
    const uint64_t frame_begin = frame * frame_bytes();
    return begin <= frame_begin && frame_begin + elems_of(frame) * value_bytes_ <= end;
  };
  const uint64_t last = (end - 1) / frame_bytes();
  uint64_t frame = begin / frame_bytes(), chunk_bytes = 0;
  if (frame == held_) RETURN_IF_CUDA_FAILED(function, copy_part(frame++));
  while (frame <= last) {
    // As many frames as fit into a chunk.
    const uint64_t first_byte = table_.offsets[frame] / frame_alignment * frame_alignment;
    chunk_bytes = copied_next(table_.offsets[last + 1] - first_byte, chunk_bytes);
    uint64_t next = frame + 1;
    while (next <= last && next - frame < most_batch_frames && table_.offsets[next + 1] - first_byte <= chunk_bytes)
      ++next;
    char* copied = nullptr;
    RETURN_IF_CUDA_FAILED(
        function, ring_.copy(table_.frames + first_byte, table_.offsets[next] - first_byte, target.stream, &copied));
    fetched_bytes_ += table_.offsets[next] - table_.offsets[frame];
    while (frame < next) {
      const char* const encoded = copied + (table_.offsets[frame] - first_byte);
      uint64_t whole_end = frame;
      while (whole_end < next && is_whole(whole_end)) ++whole_end;
      if (whole_end == frame) {
        if (const ncast_status status = decode(frame, encoded, values_, target); status != NCAST_OK) return status;
        held_ = frame;
        RETURN_IF_CUDA_FAILED(function, copy_part(frame++));
        continue;
      }
      const bool is_batch = whole_end - frame >= least_batch_frames;
      char* const values = out + (frame * frame_bytes() - begin);
      const ncast_status status =
          is_batch ? decode_batch(frame, whole_end, encoded, values, target) : decode(frame, encoded, values, target);
      if (status != NCAST_OK) return status;
      frame = is_batch ? whole_end : frame + 1;
    }
    RETURN_IF_CUDA_FAILED(function, ring_.release(target.stream));
  }
  return NCAST_OK;
}

ncast_status FrameReader::decode(uint64_t frame, const char* encoded, void* values, const RowTarget& target) {
  const ncast_cuda_options options = {target.sms != 0 ? target.sms : sms_};
  return ncast_cuda_decode(encoded, table_.offsets[frame + 1] - table_.offsets[frame], table_.dtype, table_.codec,
                           elems_of(frame), values, status_, &options, target.stream);
}

ncast_status FrameReader::decode_batch(uint64_t frame, uint64_t end, const char* encoded, char* values,
                                       const RowTarget& target) {
  FrameBatch batch{.frames = encoded,
                   .values = values,
                   .frame_elems = table_.frame_elems,
                   .last_elems = elems_of(end - 1),
                   .value_bytes = static_cast<uint32_t>(value_bytes_),
                   .dtype = table_.dtype,
                   .count = static_cast<uint32_t>(end - frame),
                   .offsets = {}};
  for (uint32_t i = 0; i <= batch.count; ++i)
    batch.offsets[i] = static_cast<uint32_t>(table_.offsets[frame + i] - table_.offsets[frame]);
  return decoder_.decode("ncast_store_reader_fetch", batch, table_.codec, target.sms != 0 ? target.sms : sms_, status_,
                         target.stream);
}

ncast_status FrameReader::take_damage(const char* function, bool* is_damaged, cudaStream_t stream) {
  RETURN_IF_CUDA_FAILED(function, decoder_.report_damage(status_, stream));
  ncast_device_status found = 0;
  RETURN_IF_CUDA_FAILED(function, cudaMemcpyAsync(&found, status_, sizeof found, cudaMemcpyDeviceToHost, stream));
  RETURN_IF_CUDA_FAILED(function, cudaMemsetAsync(status_, 0, sizeof *status_, stream));
  RETURN_IF_CUDA_FAILED(function, cudaStreamSynchronize(stream));
  *is_damaged = found != NCAST_OK;
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
