#include <algorithm>
#include <bit>
#include <cinttypes>

#include "status/cuda_driver.h"
#include "status/error.h"
#include "store/cuda/formats.h"
#include "store/cuda/reader.h"
#include "store/cuda/slice_chunk.h"
#include "store/rows/row_codec.h"

namespace narrowcast::store::cuda {
namespace {

// Ordering pays if rows are so short and tables so large that address translations limit the rate of random rows
// (docs/design/store_kernels.md).
constexpr uint64_t ordered_table_bytes = uint64_t{1} << 30, page_bytes = 2 << 20;
constexpr uint32_t ordered_row_bytes = 1440;
constexpr uint64_t ordered_rows = 2048;  // fewer rows take less time than ordering them
// Slices are fetched by the copy engine if they have at least this many bytes.
constexpr uint64_t copied_bytes = 512 << 10;

ncast_status failed(const char* function, cudaError_t error) {
  return fail(NCAST_CUDA_ERROR, "%s: %s (%s)", function, cuda_error_text(error).c_str(), cudaGetErrorName(error));
}
#define RETURN_IF_CUDA_FAILED(function, call) \
  if (const cudaError_t error_ = (call); error_ != cudaSuccess) return failed(function, error_)
#define RETURN_CUDA_ERROR(call) \
  if (const cudaError_t error_ = (call); error_ != cudaSuccess) return error_

GatherKernel kernel_of(const Model& model) {
  switch (model.coder) {
    case Coder::RAW: return raw_kernel();
    case Coder::PLAIN: return plain_kernel(static_cast<uint32_t>(model.elem_bytes()));
    case Coder::INVARIANT: return invariant_kernel(model.chunk_bytes);
    case Coder::WINDOW: return window_kernel(model.shape.dtype, static_cast<uint32_t>(model.trim.low_bits));
  }
  return {};
}

uint64_t lowest_bit(uint64_t value) { return value & -value; }

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
  max_rows_ = options.max_rows;
  if (max_rows_ > UINT32_MAX)
    return fail(NCAST_INVALID_ARGUMENT, "%s: max_rows is %" PRIu64 ", more than %" PRIu32, function, max_rows_,
                UINT32_MAX);
  const Model& model = *table.model;
  const TableFormat format = format_of(model);
  format_ = format.row;
  kernel_ = kernel_of(model);
  if (kernel_.function == nullptr)
    return fail(NCAST_INVALID_ARGUMENT, "%s: there is no kernel for this table's codec", function);
  GatherMachine machine = {};
  RETURN_IF_CUDA_FAILED(function, find_gather_machine(&machine));
  sms_ = std::min(options.sms != 0 ? options.sms : default_sms, machine.sms);

  const bool is_coded = kernel_.staged_bytes != 0;
  const uint64_t slot_bytes = table.stride != 0 ? (is_coded ? table.stride : format_.row_bytes) : table.typical_bytes;
  ShapeInput input = {};
  input.elems = format_.elems;
  input.row_bytes = format_.row_bytes;
  input.is_coded = is_coded;
  input.staged_bytes = kernel_.staged_bytes;
  input.slot_bytes = static_cast<uint32_t>(slot_bytes);
  input.slot_alignment = table.stride != 0 ? table.stride : table.unit_bytes;
  const uint64_t most_bytes = is_coded ? RowModel::raw(model.shape).bound() : format_.row_bytes;
  input.far_bytes = static_cast<uint32_t>(std::max(most_bytes, table.entry_stride));
  base_.shape = gather_shape(input, machine.shared_bytes);
  if (base_.shape.warps == 0)
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: rows of %" PRIu32 " bytes do not fit into the %zu bytes of shared memory of this GPU", function,
                format_.row_bytes, machine.shared_bytes);
  RETURN_IF_CUDA_FAILED(function, prepare_gather(kernel_, base_.shape));

  RETURN_IF_CUDA_FAILED(function, allocate(&device_words_, sizeof *device_words_));
  RETURN_IF_CUDA_FAILED(function, cudaMemset(device_words_, 0, sizeof *device_words_));
  base_.format = format.row;
  base_.coder = format.coder;
  base_.counters = &device_words_->counters;
  base_.state = {table.rows, 0};
  RowPlaces& places = base_.places;
  places = {reinterpret_cast<const char*>(table.slots),
            table.stride,
            nullptr,
            table.unit_bytes,
            table.headers,
            reinterpret_cast<const char*>(table.entries),
            table.entry_stride,
            static_cast<uint32_t>(table.entry_count)};
  RETURN_IF_CUDA_FAILED(function, map(&places.slots));
  RETURN_IF_CUDA_FAILED(function, map(&places.headers));
  RETURN_IF_CUDA_FAILED(function, map(&places.entries));
  if (table.started != nullptr) {
    words_ = {table.row_count, table.redirects};
    base_.reader = {table.started, table.finished, &device_words_->state, &device_words_->calls,
                    &device_words_->ended_ctas};
    RETURN_IF_CUDA_FAILED(function, map(&words_.row_count));
    RETURN_IF_CUDA_FAILED(function, map(&words_.redirects));
    RETURN_IF_CUDA_FAILED(function, map(&base_.reader.started));
    RETURN_IF_CUDA_FAILED(function, map(&base_.reader.finished));
    // Calls are counted on from the last one of the context.
    const unsigned long long calls = *table.finished;
    RETURN_IF_CUDA_FAILED(function, cudaMemcpy(&device_words_->calls, &calls, sizeof calls, cudaMemcpyHostToDevice));
  }
  if (table.stride == 0) {
    const size_t bytes = (table.rows + 1) * sizeof *table.offsets;
    RETURN_IF_CUDA_FAILED(function, allocate(&offsets_, bytes));
    RETURN_IF_CUDA_FAILED(function, cudaMemcpy(offsets_, table.offsets, bytes, cudaMemcpyHostToDevice));
    places.offsets = offsets_;
  }
  if (!model.masks.empty()) {
    const size_t bytes = model.masks.size();
    RETURN_IF_CUDA_FAILED(function, allocate(&masks_, 2 * bytes));
    RETURN_IF_CUDA_FAILED(function, cudaMemcpy(masks_, model.masks.data(), bytes, cudaMemcpyHostToDevice));
    RETURN_IF_CUDA_FAILED(function, cudaMemcpy(masks_ + bytes, model.values.data(), bytes, cudaMemcpyHostToDevice));
    base_.coder.masks = masks_;
    base_.coder.values = masks_ + bytes;
  }

  const uint64_t table_bytes =
      table.stride != 0 ? table.capacity * table.stride : uint64_t{table.offsets[table.rows]} * table.unit_bytes;
  if (!options.keeps_order && table_bytes > ordered_table_bytes && slot_bytes < ordered_row_bytes &&
      max_rows_ >= ordered_rows) {
    is_ordered_ = true;
    const uint64_t rows_per_page = std::max<uint64_t>(page_bytes / (table_bytes / table.capacity), 1);
    order_.page_shift = static_cast<uint32_t>(std::bit_width(rows_per_page) - 1);
    order_.page_bits = static_cast<uint32_t>(std::bit_width(table.capacity >> order_.page_shift));
    order_bytes_ = order_workspace_bytes(max_rows_, order_);
    if (order_bytes_ == 0) return failed(function, cudaGetLastError());
    RETURN_IF_CUDA_FAILED(function, allocate(&order_workspace_, order_bytes_));
  }

  RETURN_IF_CUDA_FAILED(function, allocate(&staging_, chunks * chunk_bytes));
  RETURN_IF_CUDA_FAILED(function, cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  RETURN_IF_CUDA_FAILED(function, cudaEventCreateWithFlags(&started_, cudaEventDisableTiming));
  for (int i = 0; i < chunks; ++i) {
    RETURN_IF_CUDA_FAILED(function, cudaEventCreateWithFlags(&copied_[i], cudaEventDisableTiming));
    RETURN_IF_CUDA_FAILED(function, cudaEventCreateWithFlags(&decoded_[i], cudaEventDisableTiming));
  }
  RETURN_IF_CUDA_FAILED(function, cudaDeviceSynchronize());
  return NCAST_OK;
}

// cudaFree waits for the kernels that are running.
Reader::~Reader() {
  cudaFree(device_words_);
  cudaFree(offsets_);
  cudaFree(masks_);
  cudaFree(order_workspace_);
  cudaFree(staging_);
  if (copies_ != nullptr) cudaStreamDestroy(copies_);
  if (started_ != nullptr) cudaEventDestroy(started_);
  for (int i = 0; i < chunks; ++i) {
    if (copied_[i] != nullptr) cudaEventDestroy(copied_[i]);
    if (decoded_[i] != nullptr) cudaEventDestroy(decoded_[i]);
  }
}

ncast_status Reader::check_output(const char* function, const void* out, uint64_t out_stride) const {
  const uint32_t elem_bytes = format_.elem_bytes;
  if (out == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: out is NULL", function);
  if (reinterpret_cast<uintptr_t>(out) % elem_bytes != 0 || out_stride % elem_bytes != 0)
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: out is %p with a stride of %" PRIu64 " bytes; both must be multiples of an element, %" PRIu32
                " bytes",
                function, out, out_stride, elem_bytes);
  if (out_stride < format_.row_bytes)
    return fail(NCAST_INVALID_ARGUMENT, "%s: out_stride is %" PRIu64 " bytes, less than a row (%" PRIu32 ")", function,
                out_stride, format_.row_bytes);
  return NCAST_OK;
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

cudaError_t Reader::start(cudaStream_t stream) {
  if (base_.reader.started == nullptr) return cudaSuccess;
  return start_call(base_.reader, words_, &device_words_->state, stream);
}

ncast_status Reader::gather(const void* indices, uint32_t index_bytes, uint64_t count, void* out, uint64_t out_stride,
                            cudaStream_t stream) {
  const char* const function = "ncast_store_reader_gather";
  if (count == 0) return NCAST_OK;
  if (index_bytes != 4 && index_bytes != 8)
    return fail(NCAST_INVALID_ARGUMENT, "%s: index_bytes is %" PRIu32 ", not 4 or 8", function, index_bytes);
  if (indices == nullptr || reinterpret_cast<uintptr_t>(indices) % index_bytes != 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: indices is %p, not an address of %" PRIu32 "-byte integers", function,
                indices, index_bytes);
  if (count > max_rows_)
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %" PRIu64 ", but the reader was created for %" PRIu64 " rows",
                function, count, max_rows_);
  if (const ncast_status status = check_output(function, out, out_stride); status != NCAST_OK) return status;

  GatherArguments call = arguments(out, out_stride);
  call.selection.indices = indices;
  call.selection.index_bytes = index_bytes;
  call.selection.count = count;
  // Before the start, because writers wait for calls that have started.
  if (is_ordered_ && count >= ordered_rows) {
    RETURN_IF_CUDA_FAILED(function,
                          order_by_page(indices, index_bytes, count, order_, order_workspace_, order_bytes_, stream));
    call.selection.order = reinterpret_cast<const uint32_t*>(order_workspace_);
  }
  RETURN_IF_CUDA_FAILED(function, start(stream));
  RETURN_IF_CUDA_FAILED(function, launch_gather(kernel_, call, sms_, stream));
  return NCAST_OK;
}

ncast_status Reader::fetch(uint64_t first, uint64_t count, int64_t step, void* out, uint64_t out_stride,
                           cudaStream_t stream) {
  const char* const function = "ncast_store_reader_fetch";
  if (count == 0) return NCAST_OK;
  if (const ncast_status status = check_output(function, out, out_stride); status != NCAST_OK) return status;
  if (count > UINT32_MAX)
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %" PRIu64 ", more than %" PRIu32, function, count, UINT32_MAX);
  RETURN_IF_CUDA_FAILED(function, start(stream));
  const uint64_t bytes = table_.stride != 0 ? count * table_.stride
                         : step == 1
                             ? uint64_t{table_.offsets[first + count] - table_.offsets[first]} * table_.unit_bytes
                             : 0;
  if (step == 1 && bytes >= copied_bytes && 2 * base_.shape.spare_area < chunk_bytes) {
    RETURN_IF_CUDA_FAILED(function, fetch_by_copy_engine(first, count, static_cast<char*>(out), out_stride, stream));
    return NCAST_OK;
  }
  GatherArguments call = arguments(out, out_stride);
  call.selection.first = first;
  call.selection.step = step;
  call.selection.count = count;
  RETURN_IF_CUDA_FAILED(function, launch_gather(kernel_, call, sms_, stream));
  return NCAST_OK;
}

// The copy engine moves chunks of slots to the staging ring while the kernel decodes the previous ones.
cudaError_t Reader::fetch_by_copy_engine(uint64_t first, uint64_t count, char* out, uint64_t out_stride,
                                         cudaStream_t stream) {
  RETURN_CUDA_ERROR(cudaEventRecord(started_, stream));
  RETURN_CUDA_ERROR(cudaStreamWaitEvent(copies_, started_, 0));
  const uint64_t end = first + count;
  int chunk = 0;
  for (uint64_t row = first; row < end; ++chunk) {
    const auto [next, begin, bytes] = slice_chunk(table_, row, end, chunk_bytes);
    const int place = chunk % chunks;
    char* const staged = staging_ + place * chunk_bytes;
    if (chunk >= chunks) RETURN_CUDA_ERROR(cudaStreamWaitEvent(copies_, decoded_[place], 0));
    RETURN_CUDA_ERROR(cudaMemcpyAsync(staged, table_.slots + begin, bytes, cudaMemcpyHostToDevice, copies_));
    RETURN_CUDA_ERROR(cudaEventRecord(copied_[place], copies_));
    RETURN_CUDA_ERROR(cudaStreamWaitEvent(stream, copied_[place], 0));

    GatherArguments call = arguments(out + (row - first) * out_stride, out_stride);
    // Only the last chunk's kernel ends the call.
    if (next != end) call.reader.finished = nullptr;
    call.places.slots = staged - begin;
    call.selection.first = row;
    call.selection.step = 1;
    call.selection.count = next - row;
    RETURN_CUDA_ERROR(launch_gather(kernel_, call, sms_, stream));
    if (next != end) RETURN_CUDA_ERROR(cudaEventRecord(decoded_[place], stream));
    row = next;
  }
  return cudaSuccess;
}

ncast_status Reader::counters(GatherCounters* counters, cudaStream_t stream) {
  const char* const function = "ncast_store_reader_counters";
  RETURN_IF_CUDA_FAILED(
      function, cudaMemcpyAsync(counters, &device_words_->counters, sizeof *counters, cudaMemcpyDeviceToHost, stream));
  RETURN_IF_CUDA_FAILED(function, cudaStreamSynchronize(stream));
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
