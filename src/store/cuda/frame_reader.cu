#include <algorithm>

#include "status/cuda_driver.h"
#include "status/error.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/frame_reader.h"
#include "store/cuda/slice_chunk.h"

namespace narrowcast::store::cuda {
namespace {

constexpr const char* creator = "ncast_store_reader_create";
// Kernels read host memory themselves at 0.92 of the speed of the copy engine, but start at once, so they read slices
// of up to this many bytes.
constexpr uint64_t copied_bytes = 12 << 20;

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
  uint64_t longest = 0;
  for (uint64_t i = 0; i < table.frame_count; ++i) longest = std::max(longest, table.offsets[i + 1] - table.offsets[i]);
  if (const ncast_status status = kernel_.prepare(creator, table.dtype, table.codec, table.frame_elems, table.elems);
      status != NCAST_OK)
    return status;
  RETURN_IF_CUDA_FAILED(creator, ring_.allocate(std::max(longest, longest_chunk(table.offsets[table.frame_count]))));
  const size_t offset_bytes = (table.frame_count + 1) * sizeof *offsets_;
  RETURN_IF_CUDA_FAILED(creator, cudaMalloc(reinterpret_cast<void**>(&offsets_), offset_bytes));
  RETURN_IF_CUDA_FAILED(creator, cudaMemcpy(offsets_, table.offsets, offset_bytes, cudaMemcpyHostToDevice));
  RETURN_IF_CUDA_FAILED(creator, cudaMalloc(reinterpret_cast<void**>(&counts_), sizeof *counts_));
  RETURN_IF_CUDA_FAILED(creator, cudaMemset(counts_, 0, sizeof *counts_));
  kernel_.set_memory(offsets_, counts_);
  void* mapped = nullptr;
  RETURN_IF_CUDA_FAILED(creator, cudaHostGetDevicePointer(&mapped, const_cast<uint8_t*>(table.frames), 0));
  mapped_ = static_cast<const char*>(mapped);
  RETURN_IF_CUDA_FAILED(creator, cudaDeviceSynchronize());
  return NCAST_OK;
}

FrameReader::~FrameReader() {
  cudaFree(offsets_);
  cudaFree(counts_);
}

ncast_status FrameReader::read(const char* function, const RowList& rows, uint64_t count, const RowTarget& target) {
  const uint64_t row_bytes = table_.row_bytes;
  auto* const out = static_cast<char*>(target.out);
  if (rows.indices == nullptr && rows.step == 1 && target.stride == row_bytes) {
    RETURN_IF_CUDA_FAILED(function, read_range(rows.first * row_bytes, (rows.first + count) * row_bytes, out, target));
    return NCAST_OK;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = rows[i];
    RETURN_IF_CUDA_FAILED(function,
                          read_range(row * row_bytes, (row + 1) * row_bytes, out + i * target.stride, target));
  }
  return NCAST_OK;
}

cudaError_t FrameReader::read_range(uint64_t begin, uint64_t end, char* out, const RowTarget& target) {
  if (begin == end) return cudaSuccess;
  const uint64_t bytes = table_.offsets[(end - 1) / frame_bytes() + 1] - table_.offsets[begin / frame_bytes()];
  if (bytes >= copied_bytes) return read_by_copy_engine(begin, end, out, target);
  return kernel_.launch({mapped_, begin, end, out}, sms_of(target), target.stream, true);
}

// The copy engine moves frames while a kernel decodes the previous ones.
cudaError_t FrameReader::read_by_copy_engine(uint64_t begin, uint64_t end, char* out, const RowTarget& target) {
  const uint64_t* const offsets = table_.offsets;
  const uint64_t last = (end - 1) / frame_bytes();
  uint64_t frame = begin / frame_bytes(), chunk_bytes = 0;
  // How many frames, at least one, have at most so many bytes.
  const auto next_after = [&](uint64_t most_bytes) {
    const uint64_t* const beyond =
        std::upper_bound(offsets + frame + 1, offsets + last + 2, offsets[frame] + most_bytes);
    return std::max<uint64_t>(static_cast<uint64_t>(beyond - offsets) - 1, frame + 1);
  };
  RETURN_CUDA_ERROR(ring_.begin(target.stream));
  while (frame <= last) {
    chunk_bytes = copied_next(offsets[last + 1] - offsets[frame], chunk_bytes);
    const uint64_t next = next_after(chunk_bytes), at = offsets[frame];
    char* copied = nullptr;
    RETURN_CUDA_ERROR(ring_.copy(table_.frames + at, offsets[next] - at, target.stream, &copied));
    const uint64_t from = std::max(begin, frame * frame_bytes()), to = std::min(end, next * frame_bytes());
    RETURN_CUDA_ERROR(
        kernel_.launch({copied - at, from, to, out + (from - begin)}, sms_of(target), target.stream, false));
    RETURN_CUDA_ERROR(ring_.release(target.stream));
    frame = next;
  }
  return cudaSuccess;
}

ncast_status FrameReader::take_found(const char* function, Found* found, cudaStream_t stream) {
  FrameReadCounts counts = {};
  RETURN_IF_CUDA_FAILED(function, cudaMemcpyAsync(&counts, counts_, sizeof counts, cudaMemcpyDeviceToHost, stream));
  RETURN_IF_CUDA_FAILED(function, cudaMemsetAsync(&counts_->status, 0, sizeof counts_->status, stream));
  RETURN_IF_CUDA_FAILED(function, cudaStreamSynchronize(stream));
  *found = {counts.payload_bytes, counts.status != NCAST_OK};
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
