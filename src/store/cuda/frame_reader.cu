#include <algorithm>

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
// Unless an earlier read is running: then the copy engine works ahead, which is worth its cost from so many bytes on.
constexpr uint64_t copied_ahead_bytes = 1 << 20;

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
  longest_chunk_ = std::max(longest, longest_chunk(table.offsets[table.frame_count]));
  RETURN_IF_CUDA_FAILED(creator, ring_.allocate(longest_chunk_));
  RETURN_IF_CUDA_FAILED(creator, cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming));
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
  if (ended_ != nullptr) cudaEventDestroy(ended_);
}

ncast_status FrameReader::read(const char* function, const RowList& rows, uint64_t count, const RowTarget& target) {
  const uint64_t row_bytes = table_.row_bytes;
  auto* const out = static_cast<char*>(target.out);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  RETURN_IF_CUDA_FAILED(function, cudaStreamIsCapturing(target.stream, &capture));
  // Short reads are not worth the calls, which would also keep their kernels from overlapping.
  const bool is_observed = capture == cudaStreamCaptureStatusNone && count * row_bytes >= copied_ahead_bytes;
  bool follows = false;
  if (is_observed) RETURN_IF_CUDA_FAILED(function, find_progress(&follows));
  if (rows.indices == nullptr && rows.step == 1 && target.stride == row_bytes) {
    RETURN_IF_CUDA_FAILED(function,
                          read_range(rows.first * row_bytes, (rows.first + count) * row_bytes, out, target, follows));
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t row = rows[i];
      RETURN_IF_CUDA_FAILED(
          function, read_range(row * row_bytes, (row + 1) * row_bytes, out + i * target.stride, target, follows));
      follows = is_observed;
    }
  }
  if (is_observed) RETURN_IF_CUDA_FAILED(function, cudaEventRecord(ended_, target.stream));
  return NCAST_OK;
}

cudaError_t FrameReader::find_progress(bool* is_reading) const {
  // A query would end the captures of other threads.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  RETURN_CUDA_ERROR(cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaError_t found = cudaEventQuery(ended_);
  RETURN_CUDA_ERROR(cudaThreadExchangeStreamCaptureMode(&mode));
  *is_reading = found == cudaErrorNotReady;
  if (*is_reading) cudaGetLastError();  // which is not an error
  return *is_reading ? cudaSuccess : found;
}

cudaError_t FrameReader::read_range(uint64_t begin, uint64_t end, char* out, const RowTarget& target, bool follows) {
  if (begin == end) return cudaSuccess;
  const uint64_t bytes = table_.offsets[(end - 1) / frame_bytes() + 1] - table_.offsets[begin / frame_bytes()];
  if (bytes >= (follows ? copied_ahead_bytes : copied_bytes))
    return read_by_copy_engine(begin, end, out, target, follows);
  const FrameSource source = {mapped_, mapped_, 0, table_.offsets[table_.frame_count]};
  return kernel_.launch({source, begin, end, out}, sms_of(target), target.stream, true);
}

uint64_t FrameReader::payload_at(uint64_t byte) const {
  const uint64_t frame = byte / frame_bytes(), block = byte % frame_bytes() / kernel_.block_bytes();
  if (frame == table_.frame_count) return table_.offsets[frame];
  const uint64_t at = table_.offsets[frame];
  return at + kernel_.bytes_before(table_.frames + at, table_.offsets[frame + 1] - at, frame + 1 == table_.frame_count,
                                   block);
}

// The copy engine moves frames while a kernel decodes the previous ones. Payloads of the first and the last frame that
// are not asked for are left out.
cudaError_t FrameReader::read_by_copy_engine(uint64_t begin, uint64_t end, char* out, const RowTarget& target,
                                             bool follows) {
  const uint64_t* const offsets = table_.offsets;
  const uint64_t last = (end - 1) / frame_bytes(), block_bytes = kernel_.block_bytes();
  const uint64_t last_block = (end - 1) % frame_bytes() / block_bytes;
  const uint64_t copied_end =
      payload_at(std::min(last * frame_bytes() + (last_block + 1) * block_bytes, (last + 1) * frame_bytes()));
  uint64_t frame = begin / frame_bytes(), at = std::min(payload_at(begin), copied_end);
  // Those of a read that follows another one need not begin soon. A short one is copied at once.
  const bool is_one = follows && copied_end - at <= std::min(copied_bytes, longest_chunk_);
  uint64_t chunk_bytes = follows ? most_copied : 0;
  RETURN_CUDA_ERROR(ring_.begin_ahead(target.stream));
  while (frame <= last) {
    chunk_bytes = is_one ? copied_end - at : copied_next(copied_end - at, chunk_bytes);
    // As many frames as fit, and at least one.
    uint64_t next = last + 1;
    if (copied_end - at > chunk_bytes) {
      const uint64_t* const beyond = std::upper_bound(offsets + frame + 1, offsets + last + 1, at + chunk_bytes);
      next = std::max<uint64_t>(static_cast<uint64_t>(beyond - offsets) - 1, frame + 1);
    }
    const uint64_t copied_to = next > last ? copied_end : offsets[next];
    char* copied = nullptr;
    RETURN_CUDA_ERROR(ring_.copy(table_.frames + at, copied_to - at, target.stream, &copied));
    const char* const payloads = copied - at;
    const FrameSource source = {at == offsets[frame] ? payloads : mapped_, payloads, at, copied_to};
    const uint64_t from = std::max(begin, frame * frame_bytes()), to = std::min(end, next * frame_bytes());
    RETURN_CUDA_ERROR(kernel_.launch({source, from, to, out + (from - begin)}, sms_of(target), target.stream, false));
    RETURN_CUDA_ERROR(ring_.release(target.stream));
    frame = next;
    at = copied_to;
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
