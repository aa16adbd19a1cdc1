#include <algorithm>
#include <cinttypes>

#include "status/error.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/formats.h"
#include "store/cuda/reader.h"
#include "store/cuda/shape.h"
#include "store/cuda/slice_chunk.h"
#include "store/rows/row_codec.h"

namespace narrowcast::store::cuda {
namespace {

// Ordering pays if rows are so short and tables so large that address translations limit the rate of random rows
// (docs/design/store_kernels.md).
constexpr uint64_t ordered_table_bytes = uint64_t{1} << 30, page_bytes = 4 << 20;
constexpr uint32_t ordered_row_bytes = 1440;
constexpr uint64_t ordered_rows = 2048;  // fewer rows take less time than ordering them
// Kernels read host memory themselves at 0.92 of the speed of the copy engine, but start at once, so they fetch slices
// of up to this many bytes. They are slower if slots are short, and with few SMs if nothing is decoded.
constexpr uint64_t copied_bytes = 32 << 20, copied_short_bytes = 512 << 10;
constexpr uint32_t short_slot = 256, few_sms = 4;

GatherKernel kernel_of(const Model& model) {
  switch (model.coder) {
    case Coder::RAW: return raw_kernel();
    case Coder::PLAIN: return plain_kernel(static_cast<uint32_t>(model.elem_bytes()));
    case Coder::INVARIANT: return invariant_kernel(model.chunk_bytes, model.has_stages());
    case Coder::WINDOW: return window_kernel(model.shape.dtype, static_cast<uint32_t>(model.trim.low_bits));
  }
  return {};
}

// The address on the GPU of memory that is registered; NULL stays NULL.
template <typename T>
cudaError_t map(T** pointer) {
  if (*pointer == nullptr) return cudaSuccess;
  void* mapped = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&mapped, const_cast<void*>(static_cast<const void*>(*pointer)), 0);
  if (error == cudaSuccess) *pointer = static_cast<T*>(mapped);
  return error;
}

template <typename T>
cudaError_t allocate(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}

}  // namespace

ncast_status Reader::create(const ReaderTable& table, const ReaderOptions& options, std::unique_ptr<Reader>* reader) {
  std::unique_ptr<Reader> created(new Reader);
  if (const ncast_status status = created->set_up(table, options); status != NCAST_OK) return status;
  *reader = std::move(created);
  return NCAST_OK;
}

ncast_status Reader::set_up(const ReaderTable& table, const ReaderOptions& options) {
  const char* const function = "ncast_store_reader_create";
  table_ = table;
  max_rows_ = options.max_rows != 0 ? options.max_rows : default_max_rows;
  if (max_rows_ > UINT32_MAX)
    return fail(NCAST_INVALID_ARGUMENT, "%s: max_rows is %" PRIu64 ", more than %" PRIu32, function, max_rows_,
                UINT32_MAX);
  const Model& model = *table.model;
  const TableFormat format = format_of(model);
  format_ = format.row;
  kernel_ = kernel_of(model);
  if (kernel_.uncached.for_warps == nullptr)
    return fail(NCAST_UNSUPPORTED, "%s: there is no kernel for this table's codec", function);
  RETURN_IF_CUDA_FAILED(function, find_gather_machine(&machine_));
  sms_ = options.sms != 0 ? options.sms : default_sms;

  const bool is_coded = kernel_.staged_bytes != 0;
  const uint64_t slot_bytes = table.stride != 0 ? (is_coded ? table.stride : format_.row_bytes) : table.typical_bytes;
  most_bytes_ = is_coded ? RowModel::raw(model.shape).bound() : format_.row_bytes;
  const uint64_t slot_alignment = table.stride != 0 ? table.stride : table.unit_bytes;
  base_.shape = shape_of(slot_bytes, slot_alignment, false, false);
  staged_shape_ = shape_of(slot_bytes, slot_alignment, true, false);
  if (base_.shape.warps == 0)
    return fail(NCAST_UNSUPPORTED,
                "%s: rows of %" PRIu32 " bytes do not fit into the %zu bytes of shared memory of this GPU", function,
                format_.row_bytes, machine_.shared_bytes);
  RETURN_IF_CUDA_FAILED(function, prepare_gather(kernel_, machine_));

  RETURN_IF_CUDA_FAILED(function, allocate(&device_words_, sizeof *device_words_));
  RETURN_IF_CUDA_FAILED(function, cudaMemset(device_words_, 0, sizeof *device_words_));
  base_.format = format.row;
  base_.coder = format.coder;
  base_.counters = &device_words_->counters;
  base_.state = {table.rows, 0};
  RETURN_IF_CUDA_FAILED(function, map_rows());
  if (table.started != nullptr) RETURN_IF_CUDA_FAILED(function, follow_updates());
  if (table.stride == 0) RETURN_IF_CUDA_FAILED(function, copy_offsets());
  if (!model.masks.empty()) RETURN_IF_CUDA_FAILED(function, copy_masks(model));

  const uint64_t table_bytes =
      table.stride != 0 ? table.capacity * table.stride : uint64_t{table.offsets[table.rows]} * table.unit_bytes;
  if (table_bytes > ordered_table_bytes && slot_bytes < ordered_row_bytes && max_rows_ >= ordered_rows &&
      table.capacity <= max_ordered_rows) {
    is_ordered_ = true;
    const uint64_t rows_per_page = std::max<uint64_t>(page_bytes / (table_bytes / table.capacity), 1);
    pages_ = pages_of(table.capacity, rows_per_page);
    RETURN_IF_CUDA_FAILED(function, prepare_order(machine_));
    RETURN_IF_CUDA_FAILED(function, allocate(&order_workspace_, order_workspace_bytes(max_rows_, pages_)));
  }

  RETURN_IF_CUDA_FAILED(function, index_copies_.allocate(max_rows_ * sizeof(int64_t)));
  longest_chunk_ = longest_chunk(table_bytes);  // rows that are appended later may make longer slices
  RETURN_IF_CUDA_FAILED(function, ring_.allocate(longest_chunk_ + chunk_margin));
  RETURN_IF_CUDA_FAILED(function, cudaDeviceSynchronize());
  return NCAST_OK;
}

cudaError_t Reader::map_rows() {
  RowPlaces& places = base_.places;
  places = {reinterpret_cast<const char*>(table_.slots),
            table_.stride,
            0,
            nullptr,
            table_.unit_bytes,
            table_.headers,
            reinterpret_cast<const char*>(table_.entries),
            table_.entry_stride,
            static_cast<uint32_t>(table_.entry_count)};
  RETURN_CUDA_ERROR(map(&places.slots));
  RETURN_CUDA_ERROR(map(&places.headers));
  return map(&places.entries);
}

cudaError_t Reader::follow_updates() {
  // Without offsets, all rows are known.
  words_ = {table_.row_count, table_.redirects, table_.stride != 0 ? UINT64_MAX : table_.rows};
  base_.reader = {table_.started, table_.finished, &device_words_->state, &device_words_->calls,
                  &device_words_->ended_ctas};
  RETURN_CUDA_ERROR(map(&words_.row_count));
  RETURN_CUDA_ERROR(map(&words_.redirects));
  changes_ = table_.changes;
  changed_rows_ = table_.changed_rows;
  RETURN_CUDA_ERROR(map(&changes_));
  RETURN_CUDA_ERROR(map(&changed_rows_));
  RETURN_CUDA_ERROR(map(&base_.reader.started));
  RETURN_CUDA_ERROR(map(&base_.reader.finished));
  // Calls are counted on from the last one of the context.
  const unsigned long long calls = *table_.finished;
  return cudaMemcpy(&device_words_->calls, &calls, sizeof calls, cudaMemcpyHostToDevice);
}

cudaError_t Reader::copy_offsets() {
  const size_t bytes = (table_.rows + 1) * sizeof *table_.offsets;
  RETURN_CUDA_ERROR(allocate(&offsets_, (table_.capacity + 1) * sizeof *table_.offsets));
  base_.places.offsets = offsets_;
  return cudaMemcpy(offsets_, table_.offsets, bytes, cudaMemcpyHostToDevice);
}

cudaError_t Reader::copy_masks(const Model& model) {
  const size_t bytes = model.masks.size();
  RETURN_CUDA_ERROR(allocate(&masks_, 2 * bytes));
  base_.coder.masks = masks_;
  base_.coder.values = masks_ + bytes;
  RETURN_CUDA_ERROR(cudaMemcpy(masks_, model.masks.data(), bytes, cudaMemcpyHostToDevice));
  return cudaMemcpy(masks_ + bytes, model.values.data(), bytes, cudaMemcpyHostToDevice);
}

GatherShape Reader::shape_of(uint64_t slot_bytes, uint64_t slot_alignment, bool is_staged, bool has_cache) const {
  ShapeInput input = {};
  input.elems = format_.elems;
  input.row_bytes = format_.row_bytes;
  input.is_staged = is_staged;
  input.is_coded = kernel_.staged_bytes != 0;
  input.has_only_map = format_.has_zeros != 0 && table_.model->coder == Coder::PLAIN && table_.model->coded_bits() == 0;
  input.staged_bytes = kernel_.staged_bytes;
  input.has_teams = kernel_.uncached.for_teams != nullptr && format_.has_zeros == 0;
  input.has_lanes = kernel_.uncached.for_lanes != nullptr && format_.has_zeros == 0 && format_.has_trim == 0;
  input.has_cache = has_cache;
  input.slot_bytes = static_cast<uint32_t>(slot_bytes);
  input.slot_alignment = slot_alignment;
  input.far_bytes = static_cast<uint32_t>(std::max(most_bytes_, table_.entry_stride));
  return gather_shape(input, machine_.shared_bytes);
}

// cudaFree waits for the kernels that are running.
Reader::~Reader() {
  cudaFree(device_words_);
  cudaFree(offsets_);
  cudaFree(masks_);
  cudaFree(order_workspace_);
}

GatherArguments Reader::arguments(void* out, uint64_t out_stride) const {
  GatherArguments arguments = base_;
  arguments.selection.out = static_cast<char*>(out);
  arguments.selection.out_stride = out_stride;
  uint64_t units = reinterpret_cast<uintptr_t>(out) | out_stride | format_.row_bytes | 16;
  if (kernel_.staged_bytes == 0) units |= table_.stride;
  arguments.selection.unit_bytes = static_cast<uint32_t>(lowest_bit(units));
  return arguments;
}

cudaError_t Reader::learn_rows(uint64_t rows, cudaStream_t stream) {
  if (offsets_ == nullptr || rows <= words_.known_rows || base_.reader.started == nullptr) return cudaSuccess;
  // A captured copy would not have run before calls that are not captured.
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  RETURN_CUDA_ERROR(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) return cudaSuccess;
  const uint64_t known = words_.known_rows;
  RETURN_CUDA_ERROR(cudaMemcpyAsync(offsets_ + known + 1, table_.offsets + known + 1, (rows - known) * sizeof *offsets_,
                                    cudaMemcpyHostToDevice, stream));
  words_.known_rows = rows;
  return cudaSuccess;
}

cudaError_t Reader::start(cudaStream_t stream) {
  if (base_.reader.started == nullptr) return cudaSuccess;
  return start_call(base_.reader, words_, &device_words_->state, stream);
}

uint32_t Reader::sms_of(const RowTarget& target) const {
  return std::min(target.sms != 0 ? target.sms : sms_, machine_.sms);
}

ncast_status Reader::gather(const Indices& indices, uint64_t rows, const RowTarget& target) {
  const char* const function = "ncast_store_reader_gather";
  if (indices.count == 0) return NCAST_OK;
  const uint32_t index_bytes = indices.index_bytes;
  if (indices.on_host) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    RETURN_IF_CUDA_FAILED(function, cudaStreamIsCapturing(target.stream, &capture));
    if (capture != cudaStreamCaptureStatusNone)
      return fail(NCAST_UNSUPPORTED, "%s: indices in host memory cannot be captured: copy them to the GPU first",
                  function);
  } else if (reinterpret_cast<uintptr_t>(indices.data) % index_bytes != 0) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: indices is %p, not an address of %" PRIu32 "-byte integers", function,
                indices.data, index_bytes);
  }
  RETURN_IF_CUDA_FAILED(function, learn_rows(rows, target.stream));
  for (uint64_t first = 0; first < indices.count; first += max_rows_) {
    const uint64_t count = std::min(max_rows_, indices.count - first);
    const void* piece = static_cast<const char*>(indices.data) + first * index_bytes;
    if (indices.on_host)
      RETURN_IF_CUDA_FAILED(function, index_copies_.copy(piece, count * index_bytes, target.stream, &piece));
    char* const out = static_cast<char*>(target.out) + first * target.stride;
    RETURN_IF_CUDA_FAILED(function, gather_piece({piece, index_bytes, count, false, indices.in_order}, out, target));
  }
  return NCAST_OK;
}

cudaError_t Reader::gather_piece(const Indices& indices, char* out, const RowTarget& target) {
  GatherArguments call = arguments(out, target.stride);
  call.selection.indices = indices.data;
  call.selection.index_bytes = indices.index_bytes;
  call.selection.count = indices.count;
  // Before the start, because writers wait for calls that have started.
  if (is_ordered_ && !indices.in_order && indices.count >= ordered_rows) {
    RETURN_CUDA_ERROR(order_by_page(indices.data, indices.index_bytes, indices.count, pages_, order_workspace_,
                                    machine_, sms_of(target), target.stream));
    call.selection.entries = reinterpret_cast<const uint64_t*>(order_workspace_);
  }
  RETURN_CUDA_ERROR(start(target.stream));
  if (cache_ != nullptr) return gather_cached(call, target);
  return launch_gather(kernel_, call, sms_of(target), target.stream);
}

ncast_status Reader::fetch(uint64_t first, uint64_t count, int64_t step, uint64_t rows, const RowTarget& target) {
  const char* const function = "ncast_store_reader_fetch";
  if (count == 0) return NCAST_OK;
  if (count > UINT32_MAX)
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %" PRIu64 ", more than %" PRIu32, function, count, UINT32_MAX);
  RETURN_IF_CUDA_FAILED(function, learn_rows(rows, target.stream));
  RETURN_IF_CUDA_FAILED(function, start(target.stream));
  const bool is_read_fast =
      base_.shape.slot_bytes >= short_slot && (kernel_.staged_bytes != 0 || sms_of(target) >= few_sms);
  if (step == 1 && slice_bytes(table_, first, first + count) >= (is_read_fast ? copied_bytes : copied_short_bytes)) {
    RETURN_IF_CUDA_FAILED(function, fetch_by_copy_engine(first, count, target));
    return NCAST_OK;
  }
  GatherArguments call = arguments(target.out, target.stride);
  call.selection.first = first;
  call.selection.step = step;
  call.selection.count = count;
  RETURN_IF_CUDA_FAILED(function, launch_gather(kernel_, call, sms_of(target), target.stream));
  return NCAST_OK;
}

// The copy engine moves chunks of slots to the ring while a kernel decodes the previous chunk.
cudaError_t Reader::fetch_by_copy_engine(uint64_t first, uint64_t count, const RowTarget& target) {
  RETURN_CUDA_ERROR(ring_.begin(target.stream));
  const uint64_t end = first + count;
  uint64_t row = first, copied = 0;
  const bool is_coded = kernel_.staged_bytes != 0;
  while (row < end) {
    copied = std::min(copied_next(slice_bytes(table_, row, end), copied), longest_chunk_);
    const auto [next, begin, bytes] = slice_chunk(table_, row, end, copied + 32);
    char* staged = nullptr;
    RETURN_CUDA_ERROR(ring_.copy(table_.slots + begin, bytes, target.stream, &staged));
    GatherArguments call = arguments(static_cast<char*>(target.out) + (row - first) * target.stride, target.stride);
    // Only the last kernel ends the call.
    if (next != end) call.reader.finished = nullptr;
    call.places.slots = staged - begin;
    call.shape = staged_shape_;
    call.places.is_staged = is_coded && is_dense(call.shape, table_.stride, table_.unit_bytes) ? 1 : 0;
    call.selection.first = row;
    call.selection.step = 1;
    call.selection.count = next - row;
    RETURN_CUDA_ERROR(launch_gather(kernel_, call, sms_of(target), target.stream));
    RETURN_CUDA_ERROR(ring_.release(target.stream));
    row = next;
  }
  return cudaSuccess;
}

ncast_status Reader::counters(const char* function, GatherCounters* counters, cudaStream_t stream) {
  GatherCounters sums = {};
  RETURN_IF_CUDA_FAILED(function,
                        cudaMemcpyAsync(&sums, &device_words_->counters, sizeof sums, cudaMemcpyDeviceToHost, stream));
  RETURN_IF_CUDA_FAILED(function, cudaStreamSynchronize(stream));
  CacheCounters cached = {};
  if (const ncast_status status = cache_counters(function, &cached, stream); status != NCAST_OK) return status;
  *counters = sums;
  // Copies that did not serve were read again.
  counters->rows += cached.copies - cached.overflows;
  counters->fetched_bytes += cached.fetched_bytes;
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
