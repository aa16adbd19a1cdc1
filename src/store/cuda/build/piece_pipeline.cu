#include <algorithm>

#include "device/device_guard.h"
#include "store/cuda/build/encode_format.h"
#include "store/cuda/build/encode_rows.cuh"
#include "store/cuda/build/piece_pipeline.h"
#include "store/cuda/cuda_errors.h"

namespace narrowcast::store::cuda {
namespace {

constexpr const char* function = "ncast_store_builder";
// A chunk of rows has 8 MiB, because each copy and kernel has a fixed cost, or more if rows are long: a warp encodes
// one, and a GPU needs many.
constexpr uint64_t least_chunk_bytes = 8u << 20, most_chunk_bytes = 32u << 20, wanted_chunk_rows = 512;
constexpr uint64_t most_chunk_rows = 131072;
constexpr uint64_t most_packed_chunk_bytes = 36u << 20;  // payloads of a chunk, if units are large
constexpr uint64_t raw_piece_bytes = 66u << 20;          // Python's blocks have twice 64 MiB, or a few rows more
// Of a piece. While the host completes one, another has to be long enough to keep all three stages at work.
constexpr uint64_t least_chunks = 4, most_chunks = 17;
// Warps that share the places of 32 rows. Short rows: finding the places takes longer than copying a row.
constexpr uint32_t warps_per_tile = 32, warps_per_short_tile = 8, short_row_bytes = 256;
constexpr uint32_t ctas_per_sm = 4;

uint64_t rounded_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

cudaError_t copy_rows(const RowBlock& rows, uint64_t row_bytes, void* to, cudaStream_t stream) {
  if (rows.stride == row_bytes)
    return cudaMemcpyAsync(to, rows.rows, rows.count * row_bytes, cudaMemcpyDefault, stream);
  return cudaMemcpy2DAsync(to, row_bytes, rows.rows, rows.stride, row_bytes, rows.count, cudaMemcpyDefault, stream);
}

// The GPU whose memory has the rows; -1 for memory of the host.
int device_of(const RowBlock& rows) {
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, rows.rows) != cudaSuccess) {
    cudaGetLastError();  // an address that CUDA does not know
    return -1;
  }
  const bool is_on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return is_on_device ? attributes.device : -1;
}

template <typename T, typename Mapped>
cudaError_t device_address(T* memory, Mapped** address) {
  void* mapped = nullptr;
  RETURN_CUDA_ERROR(cudaHostGetDevicePointer(&mapped, memory, 0));
  *address = static_cast<Mapped*>(mapped);
  return cudaSuccess;
}

EncodeKernel kernel_of(const Model& model) {
  switch (model.coder) {
    case Coder::RAW: break;
    case Coder::PLAIN: return plain_encoder(static_cast<uint32_t>(model.elem_bytes()));
    case Coder::INVARIANT: return invariant_encoder(model.chunk_bytes, model.has_stages());
    case Coder::WINDOW: return window_encoder(model);
  }
  return {};
}

}  // namespace

ncast_status PiecePipeline::failed(cudaError_t error) const { return cuda::failed(function, error); }

ncast_status PiecePipeline::create(int device, std::unique_ptr<PieceEncoder>* encoder) {
  std::unique_ptr<PiecePipeline> created(new PiecePipeline(device));
  const device::DeviceGuard device_guard(device);
  cudaError_t error = device_guard.error();
  if (error == cudaSuccess) error = created->create_streams();
  if (error != cudaSuccess) return created->failed(error);
  *encoder = std::move(created);
  return NCAST_OK;
}

cudaError_t PiecePipeline::create_streams() {
  int sms = 0;
  RETURN_CUDA_ERROR(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device_));
  ctas_ = static_cast<uint32_t>(sms) * ctas_per_sm;
  for (cudaStream_t* stream : {&in_, &work_})
    RETURN_CUDA_ERROR(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  // Kernels that take payloads to the host need few SMs, and would wait for those that encode the next chunk.
  int lowest = 0, highest = 0;
  RETURN_CUDA_ERROR(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  RETURN_CUDA_ERROR(cudaStreamCreateWithPriority(&out_, cudaStreamNonBlocking, highest));
  for (Buffers& buffers : buffers_)
    for (cudaEvent_t* event : {&buffers.arrived, &buffers.encoded, &buffers.placed, &buffers.left})
      RETURN_CUDA_ERROR(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  for (Result& result : results_) RETURN_CUDA_ERROR(cudaEventCreateWithFlags(&result.complete, cudaEventDisableTiming));
  return cudaSuccess;
}

PiecePipeline::~PiecePipeline() {
  const device::DeviceGuard device_guard(device_);
  for (const cudaStream_t stream : {in_, work_, out_})
    if (stream != nullptr) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
  for (const Buffers& buffers : buffers_)
    for (const cudaEvent_t event : {buffers.arrived, buffers.encoded, buffers.placed, buffers.left})
      if (event != nullptr) cudaEventDestroy(event);
  for (const Result& result : results_)
    if (result.complete != nullptr) cudaEventDestroy(result.complete);
  for (void* const memory : memory_) cudaFree(memory);
  for (void* const memory : host_memory_) cudaFreeHost(memory);
  for (void* const memory : added_memory_) cudaHostUnregister(memory);
}

bool PiecePipeline::holds(const RowBlock& rows) const {
  const device::DeviceGuard device_guard(device_);
  return rows.count != 0 && device_of(rows) >= 0;
}

ncast_status PiecePipeline::copy_to_host(const RowBlock& rows, uint64_t row_bytes, uint8_t* to) {
  const device::DeviceGuard device_guard(device_);
  cudaError_t error = device_guard.error();
  if (error == cudaSuccess) error = copy_rows(rows, row_bytes, to, in_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(in_);
  return error == cudaSuccess ? NCAST_OK : failed(error);
}

template <typename T>
cudaError_t PiecePipeline::allocate(T** memory, uint64_t bytes) {
  RETURN_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(memory), bytes));
  memory_.push_back(*memory);
  return cudaSuccess;
}
template <typename T>
cudaError_t PiecePipeline::allocate_host(T** memory, uint64_t bytes) {
  RETURN_CUDA_ERROR(cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, cudaHostAllocMapped));
  host_memory_.push_back(*memory);
  return cudaSuccess;
}

ncast_status PiecePipeline::begin(const RowModel& row_model, const PayloadLayout& layout) {
  const Model& model = row_model.model();
  kernel_ = kernel_of(model);
  if (kernel_.function == nullptr)
    return fail(NCAST_UNSUPPORTED, "%s: no kernel encodes %s", function, row_model.text().c_str());
  const uint64_t bound = row_model.bound();
  row_bytes_ = model.shape.row_bytes();
  row_alignment_ = row_alignment(model);
  place_.slot_bytes = static_cast<uint32_t>(layout.slot_bytes);
  place_.unit_bytes = static_cast<uint32_t>(layout.slot_bytes != 0 ? layout.entry_bytes : layout.unit_bytes);
  encode_.payload_pitch = place_.payload_pitch = static_cast<uint32_t>(rounded_up(bound, 16));
  const uint64_t packed_bytes = rounded_up(bound, place_.unit_bytes);
  longest_bytes_ = layout.slot_bytes != 0 ? layout.slot_bytes : packed_bytes;
  place_.warps_per_tile = row_bytes_ < short_row_bytes ? warps_per_short_tile : warps_per_tile;
  const uint64_t chunk_bytes = std::clamp(wanted_chunk_rows * row_bytes_, least_chunk_bytes, most_chunk_bytes);
  chunk_rows_ = std::max<uint64_t>(
      std::min({chunk_bytes / row_bytes_, most_packed_chunk_bytes / packed_bytes, most_chunk_rows}), 1);
  piece_rows_ = std::clamp(raw_piece_bytes / row_bytes_, chunk_rows_ * least_chunks, chunk_rows_ * most_chunks);
  const device::DeviceGuard device_guard(device_);
  cudaError_t error = device_guard.error();
  if (error == cudaSuccess) error = allocate(model);
  return error == cudaSuccess ? NCAST_OK : failed(error);
}

cudaError_t PiecePipeline::allocate(const Model& model) {
  encode_.format = encode_format_of(model);
  for (const void** const table : {&encode_.format.masks, &encode_.format.cluster_values}) {
    if (*table == nullptr) continue;
    char* copied = nullptr;
    const uint64_t bytes = uint64_t{model.clusters} * row_bytes_;
    RETURN_CUDA_ERROR(allocate(&copied, bytes));
    RETURN_CUDA_ERROR(cudaMemcpyAsync(copied, *table, bytes, cudaMemcpyHostToDevice, work_));
    *table = copied;
  }
  RETURN_CUDA_ERROR(cudaStreamSynchronize(work_));
  const uint64_t packed_bytes = rounded_up(encode_.payload_pitch, place_.unit_bytes);
  RETURN_CUDA_ERROR(allocate(&encode_.payloads, chunk_rows_ * encode_.payload_pitch));
  RETURN_CUDA_ERROR(allocate(&encode_.lengths, chunk_rows_ * sizeof(uint32_t)));
  place_.payloads = encode_.payloads;
  place_.lengths = encode_.lengths;
  const uint64_t tiles = (chunk_rows_ + rows_per_tile - 1) / rows_per_tile;
  RETURN_CUDA_ERROR(allocate(&place_.tile_units, tiles * sizeof(uint32_t)));
  RETURN_CUDA_ERROR(allocate(&place_.piece_units, sizeof(uint32_t)));
  if (model.has_zeros && model.coder != Coder::INVARIANT) {
    encode_.map_offset = static_cast<uint32_t>(rounded_up(row_bytes_, 8));
    encode_.scratch_pitch =
        static_cast<uint32_t>(rounded_up(encode_.map_offset + (uint64_t{encode_.format.elems} + 31) / 32 * 4, 16));
    const uint64_t warps = std::min(rounded_up(chunk_rows_, encode_warps), uint64_t{ctas_} * encode_warps);
    RETURN_CUDA_ERROR(allocate(&encode_.scratch, warps * encode_.scratch_pitch));
  }
  for (Buffers& buffers : buffers_) {
    RETURN_CUDA_ERROR(allocate(&buffers.rows, chunk_rows_ * row_bytes_));
    if (place_.slot_bytes != 0) RETURN_CUDA_ERROR(allocate(&buffers.slots, chunk_rows_ * place_.slot_bytes));
    RETURN_CUDA_ERROR(allocate(&buffers.packed, chunk_rows_ * packed_bytes));
    RETURN_CUDA_ERROR(allocate(&buffers.numbers, chunk_rows_ * sizeof(uint32_t)));
    RETURN_CUDA_ERROR(allocate(&buffers.run, sizeof(PackedRun)));
  }
  for (Result& result : results_) {
    RETURN_CUDA_ERROR(allocate_host(&result.units, sizeof(uint32_t)));
    RETURN_CUDA_ERROR(allocate_host(&result.numbers, piece_rows_ * sizeof(uint32_t)));
    if (place_.slot_bytes != 0) RETURN_CUDA_ERROR(allocate_host(&result.entries, piece_rows_ * packed_bytes));
  }
  return cudaSuccess;
}

ncast_status PiecePipeline::add_memory(uint8_t* memory, uint64_t bytes) {
  const device::DeviceGuard device_guard(device_);
  cudaError_t error = device_guard.error();
  if (error == cudaSuccess) error = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error != cudaSuccess) return failed(error);
  added_memory_.push_back(memory);
  return NCAST_OK;
}

ncast_status PiecePipeline::start(const RowBlock& rows, uint8_t* to) {
  const device::DeviceGuard device_guard(device_);
  cudaError_t error = device_guard.error();
  if (error == cudaSuccess) error = start_piece(rows, to);
  if (error == cudaSuccess) return NCAST_OK;
  // The caller's rows are not used after a call that fails.
  for (const cudaStream_t stream : {in_, work_}) cudaStreamSynchronize(stream);
  return failed(error);
}

cudaError_t PiecePipeline::start_piece(const RowBlock& rows, uint8_t* to) {
  Result& result = results_[pieces_++ % result_count];
  // Kernels read rows where they are if they can.
  const bool in_place =
      device_of(rows) == device_ && (reinterpret_cast<uintptr_t>(rows.rows) | rows.stride) % row_alignment_ == 0;
  CopyOutArguments out = {};
  out.unit_bytes = place_.unit_bytes;
  RETURN_CUDA_ERROR(device_address(place_.slot_bytes != 0 ? result.entries : to, &out.to));
  RETURN_CUDA_ERROR(device_address(result.numbers, &out.rows_to));
  RETURN_CUDA_ERROR(device_address(result.units, &out.units_to));
  RETURN_CUDA_ERROR(cudaMemsetAsync(place_.piece_units, 0, sizeof(uint32_t), work_));
  for (uint64_t first = 0; first < rows.count; first += chunk_rows_) {
    const RowBlock chunk{rows.rows + first * rows.stride, rows.stride, std::min(chunk_rows_, rows.count - first)};
    Buffers& buffers = buffers_[chunks_++ % buffer_count];
    RETURN_CUDA_ERROR(start_chunk(chunk, in_place, first, result, out, buffers));
    if (place_.slot_bytes != 0)
      RETURN_CUDA_ERROR(cudaMemcpyAsync(to + first * place_.slot_bytes, buffers.slots, chunk.count * place_.slot_bytes,
                                        cudaMemcpyDeviceToHost, out_));
    RETURN_CUDA_ERROR(cudaEventRecord(buffers.left, out_));
  }
  return cudaEventRecord(result.complete, out_);
}

cudaError_t PiecePipeline::start_chunk(const RowBlock& rows, bool in_place, uint64_t first_row, const Result& result,
                                       CopyOutArguments out, Buffers& buffers) {
  EncodeArguments encode = encode_;
  encode.count = static_cast<uint32_t>(rows.count);
  if (in_place) {
    encode.rows = reinterpret_cast<const char*>(rows.rows);
    encode.row_stride = rows.stride;
  } else {
    // Events that were not recorded yet do not delay anything.
    RETURN_CUDA_ERROR(cudaStreamWaitEvent(in_, buffers.encoded, 0));
    RETURN_CUDA_ERROR(copy_rows(rows, row_bytes_, buffers.rows, in_));
    RETURN_CUDA_ERROR(cudaEventRecord(buffers.arrived, in_));
    RETURN_CUDA_ERROR(cudaStreamWaitEvent(work_, buffers.arrived, 0));
    encode.rows = buffers.rows;
    encode.row_stride = row_bytes_;
  }
  RETURN_CUDA_ERROR(launch_encode(kernel_, encode, ctas_, work_));
  RETURN_CUDA_ERROR(cudaEventRecord(buffers.encoded, work_));
  rows_read_ = in_place ? buffers.encoded : buffers.arrived;

  PlaceArguments place = place_;
  place.count = encode.count;
  place.run = buffers.run;
  place.slots = buffers.slots;
  place.packed = buffers.packed;
  place.numbers = buffers.numbers;
  place.first_row = static_cast<uint32_t>(first_row);
  RETURN_CUDA_ERROR(cudaStreamWaitEvent(work_, buffers.left, 0));
  RETURN_CUDA_ERROR(launch_place(place, ctas_, work_));
  RETURN_CUDA_ERROR(cudaEventRecord(buffers.placed, work_));

  RETURN_CUDA_ERROR(cudaStreamWaitEvent(out_, buffers.placed, 0));
  out.run = buffers.run;
  out.packed = buffers.packed;
  if (place.slot_bytes != 0) out.rows = buffers.numbers;
  RETURN_CUDA_ERROR(launch_copy_out(out, out_));
  if (place.slot_bytes != 0) return cudaSuccess;
  return cudaMemcpyAsync(result.numbers + first_row, buffers.numbers, rows.count * sizeof(uint32_t),
                         cudaMemcpyDeviceToHost, out_);
}

ncast_status PiecePipeline::release_rows() {
  if (rows_read_ == nullptr) return NCAST_OK;
  const cudaError_t error = cudaEventSynchronize(rows_read_);
  return error == cudaSuccess ? NCAST_OK : failed(error);
}

ncast_status PiecePipeline::finish(EncodedPiece* piece) {
  const Result& result = results_[finished_pieces_++ % result_count];
  const cudaError_t error = cudaEventSynchronize(result.complete);
  if (error != cudaSuccess) return failed(error);
  if (place_.slot_bytes != 0)
    *piece = {0, nullptr, {result.numbers, *result.units}, result.entries};
  else
    *piece = {*result.units, result.numbers, {}, nullptr};
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
