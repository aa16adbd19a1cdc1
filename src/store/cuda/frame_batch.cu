#include "codec/frame/layout.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/frame_batch.h"

namespace narrowcast::store::cuda {
namespace {

// Thread i reports the status of frame i of the batch before, and fills the tables for that of this batch. The headers
// of frames tell the decoder their types and sizes, so those of this table are checked here.
__global__ void fill_tables(const __grid_constant__ FrameBatch batch, FrameTables* tables,
                            ncast_device_status* damage) {
  const uint32_t i = threadIdx.x;
  if (tables->statuses[i] != NCAST_OK) *damage = NCAST_CORRUPT;
  tables->statuses[i] = NCAST_OK;
  if (i >= batch.count) return;
  const char* const frame = batch.frames + batch.offsets[i];
  const size_t bytes = batch.offsets[i + 1] - batch.offsets[i];
  const uint64_t elems = i + 1 == batch.count ? batch.last_elems : batch.frame_elems;
  const auto* const header = reinterpret_cast<const format::FrameHeader*>(frame);
  const bool is_expected = bytes >= sizeof *header && header->dtype == batch.dtype && header->elems == elems;
  tables->frames[i] = frame;
  tables->frame_bytes[i] = is_expected ? bytes : 0;
  tables->values[i] = batch.values + i * batch.frame_elems * batch.value_bytes;
  tables->capacities[i] = elems * batch.value_bytes;
}

}  // namespace

FrameDecoder::~FrameDecoder() {
  cudaFree(tables_);
  cudaFree(workspace_);
}

cudaError_t FrameDecoder::allocate() {
  workspace_bytes_ = ncast_cuda_decode_batch_workspace_bytes(most_batch_frames);
  RETURN_CUDA_ERROR(cudaMalloc(&workspace_, workspace_bytes_));
  RETURN_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(&tables_), sizeof *tables_));
  return cudaMemset(tables_, 0, sizeof *tables_);
}

ncast_status FrameDecoder::decode(const char* function, const FrameBatch& batch, ncast_codec codec, uint32_t sms,
                                  ncast_device_status* damage, cudaStream_t stream) {
  fill_tables<<<1, most_batch_frames, 0, stream>>>(batch, tables_, damage);
  RETURN_IF_CUDA_FAILED(function, cudaGetLastError());
  const ncast_cuda_options options = {sms};
  return ncast_cuda_decode_batch(batch.count, tables_->frames, tables_->frame_bytes, codec, tables_->values,
                                 tables_->capacities, tables_->value_bytes, tables_->statuses, workspace_,
                                 workspace_bytes_, &options, stream);
}

cudaError_t FrameDecoder::report_damage(ncast_device_status* damage, cudaStream_t stream) {
  fill_tables<<<1, most_batch_frames, 0, stream>>>(FrameBatch{}, tables_, damage);
  return cudaGetLastError();
}

}  // namespace narrowcast::store::cuda
