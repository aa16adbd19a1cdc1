#include <algorithm>
#include <cinttypes>
#include <utility>
#include <vector>

#include "device/device_guard.h"
#include "narrowcast/codec.h"
#include "status/error.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/registered_memory.h"
#include "store/cuda/table_reader.h"
#include "store/file/header.h"
#include "store/table/locate.h"

namespace narrowcast::store::cuda {
namespace {

constexpr const char* creator = "ncast_store_reader_create";

}  // namespace

ncast_status TableReader::create(Table& table, const ReaderOptions& options, std::unique_ptr<TableReader>* reader) {
  std::unique_ptr<TableReader> created(new TableReader(table));
  RETURN_IF_CUDA_FAILED(creator, cudaGetDevice(&created->device_));
  RETURN_IF_CUDA_FAILED(creator, cudaFree(nullptr));  // there is a GPU
  if (const ncast_status status = created->check_file(&created->times_written_); status != NCAST_OK) return status;
  const ncast_status status = reading(table, [&] {
    if (const ncast_status failed = register_memory(creator, table); failed != NCAST_OK) return failed;
    return table.view.layout == Layout::blocks ? created->open_frames(options) : created->open_rows(options);
  });
  if (status != NCAST_OK) return status;
  *reader = std::move(created);
  return NCAST_OK;
}

ncast_status TableReader::open_rows(const ReaderOptions& options) {
  const TableView& view = table_.view;
  ReaderTable seen = {};
  seen.model = &table_.model->model();
  seen.slots = view.data;
  seen.stride = view.layout == Layout::stride ? view.stride : 0;
  seen.offsets = view.offsets;
  seen.unit_bytes = view.unit;
  seen.headers = view.row_words;
  seen.entries = view.entries;
  seen.entry_stride = view.entry_stride;
  seen.entry_count = view.entry_count;
  seen.typical_bytes = view.usual_bytes;
  seen.capacity = view.capacity;
  seen.rows = table_.rows();
  if (table_.writer != nullptr) {
    context_ = table_.readers.claim();
    if (context_ == max_readers) {
      return fail(NCAST_TOO_SMALL, "%s: %s has %" PRIu32 " readers, which is the maximum", creator, table_.name.c_str(),
                  max_readers);
    }
    ReaderWords& words = view.readers[context_];
    seen.row_count = &view.control->rows;
    seen.changes = &view.control->changes;
    seen.changed_rows = view.changed_rows;
    seen.redirects = view.row_words != nullptr ? &view.control->any_redirect : nullptr;
    seen.started = &words.started;
    seen.finished = &words.finished;
  }
  return Reader::create(seen, options, &rows_);
}

ncast_status TableReader::open_frames(const ReaderOptions& options) {
  const TableView& view = table_.view;
  const auto* const offsets = reinterpret_cast<const uint64_t*>(view.offsets);
  FrameTable frames = {};
  frames.frames = view.data;
  frames.offsets = offsets;
  frames.frame_count = file::frames_of(table_.header);
  frames.dtype = static_cast<ncast_dtype>(table_.header.dtype);
  frames.frame_elems = view.stride;
  frames.elems = table_.header.rows * table_.header.row_elems();
  frames.row_bytes = view.row_bytes;
  if (frames.frame_count != 0) {
    ncast_frame_info info = {};
    info.struct_bytes = sizeof info;
    if (ncast_inspect(view.data, offsets[1], &info) != NCAST_OK)
      return fail(NCAST_CORRUPT, "%s: the first frame of %s is damaged", creator, table_.name.c_str());
    frames.codec = info.codec;
  }
  return FrameReader::create(frames, options.sms, &frames_);
}

TableReader::~TableReader() {
  const device::DeviceGuard device_guard(device_);
  if (rows_ != nullptr || frames_ != nullptr) cudaDeviceSynchronize();
  rows_.reset();
  frames_.reset();
  if (context_ != max_readers) table_.readers.release(context_);
}

ncast_status TableReader::check_file(uint64_t* times_written) const {
  if (table_.mapped == nullptr) return NCAST_OK;
  const BusErrorScope scope;
  return table_.mapped->check_before(table_, times_written);
}

ncast_status TableReader::check_target(const char* function, const RowTarget& target, uint64_t count) const {
  uint64_t times_written = 0;
  if (const ncast_status status = check_file(&times_written); status != NCAST_OK) return status;
  if (times_written != times_written_)
    return fail(NCAST_CORRUPT, "%s: %s was written after its rows were verified for GPUs: open it again", function,
                table_.name.c_str());
  int device = 0;
  RETURN_IF_CUDA_FAILED(function, cudaGetDevice(&device));
  if (device != device_)
    return fail(NCAST_INVALID_ARGUMENT, "%s: the reader is of device %d, but device %d is current", function, device_,
                device);
  if (count == 0) return NCAST_OK;
  if (target.out == nullptr) return null_argument(function, "out");
  const uint64_t value_bytes = ncast_dtype_bytes(static_cast<ncast_dtype>(table_.header.dtype));
  if (reinterpret_cast<uintptr_t>(target.out) % value_bytes != 0 || target.stride % value_bytes != 0)
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: out is %p with a stride of %" PRIu64 " bytes; both must be multiples of a value, %" PRIu64
                " bytes",
                function, target.out, target.stride, value_bytes);
  if (target.stride < table_.view.row_bytes)
    return fail(NCAST_INVALID_ARGUMENT, "%s: out_stride is %" PRIu64 " bytes, less than a row (%" PRIu64 ")", function,
                target.stride, table_.view.row_bytes);
  return NCAST_OK;
}

ncast_status TableReader::gather(const Indices& indices, const RowTarget& target) {
  const char* const function = "ncast_store_reader_gather";
  const std::lock_guard lock(mutex_);
  if (const ncast_status status = check_target(function, target, indices.count); status != NCAST_OK) return status;
  const uint64_t rows = table_.rows();
  RowList list;
  list.indices = indices.data;
  list.index_bytes = indices.index_bytes;
  if (indices.on_host) {
    if (const ncast_status status = check_rows(function, list, indices.count, rows); status != NCAST_OK) return status;
  }
  ++gathers_;
  if (rows_ != nullptr) return rows_->gather(indices, rows, target);
  if (!indices.on_host)
    return fail(NCAST_UNSUPPORTED,
                "%s: %s has the layout blocks, from which GPUs gather only with indices in host memory", function,
                table_.name.c_str());
  frame_rows_ += indices.count;
  return frames_->read(function, list, indices.count, target);
}

ncast_status TableReader::fetch(uint64_t first, uint64_t count, int64_t step, const RowTarget& target) {
  const char* const function = "ncast_store_reader_fetch";
  const std::lock_guard lock(mutex_);
  if (const ncast_status status = check_target(function, target, count); status != NCAST_OK) return status;
  const uint64_t rows = table_.rows();
  RowList list;
  list.first = first;
  list.step = step;
  if (const ncast_status status = check_rows(function, list, count, rows); status != NCAST_OK) return status;
  ++fetches_;
  if (rows_ != nullptr) return rows_->fetch(first, count, step, rows, target);
  frame_rows_ += count;
  return frames_->read(function, list, count, target);
}

ncast_status TableReader::read_counters(const char* function, ncast_store_reader_counters* counters,
                                        cudaStream_t stream) {
  *counters = {};
  counters->gathers = gathers_;
  counters->fetches = fetches_;
  if (rows_ != nullptr) {
    GatherCounters sums = {};
    if (const ncast_status status = rows_->counters(function, &sums, stream); status != NCAST_OK) return status;
    counters->rows_read = sums.rows;
    counters->fetched_bytes = sums.fetched_bytes;
    counters->overflow_rows_read = sums.redirected_rows;
    counters->bad_indices = sums.bad_indices;
    counters->damaged_rows_read = sums.corrupt_rows;
    return NCAST_OK;
  }
  FrameReader::Found found = {};
  if (const ncast_status status = frames_->take_found(function, &found, stream); status != NCAST_OK) return status;
  damaged_frames_ += found.is_damaged ? 1 : 0;
  counters->rows_read = frame_rows_;
  counters->fetched_bytes = found.payload_bytes;
  counters->damaged_rows_read = damaged_frames_;
  return NCAST_OK;
}

ncast_status TableReader::counters(const char* function, ncast_store_reader_counters* counters, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  const device::DeviceGuard device_guard(device_);
  return read_counters(function, counters, stream);
}

ncast_status TableReader::check(cudaStream_t stream) {
  const char* const function = "ncast_store_reader_check";
  const std::lock_guard lock(mutex_);
  const device::DeviceGuard device_guard(device_);
  ncast_store_reader_counters now = {};
  if (const ncast_status status = read_counters(function, &now, stream); status != NCAST_OK) return status;
  const uint64_t bad = now.bad_indices - std::exchange(checked_bad_indices_, now.bad_indices);
  const uint64_t damaged = now.damaged_rows_read - std::exchange(checked_damaged_rows_, now.damaged_rows_read);
  if (damaged != 0) {
    if (frames_ != nullptr)
      return fail(NCAST_CORRUPT, "%s: a frame of %s could not be decoded", function, table_.name.c_str());
    return fail(NCAST_CORRUPT, "%s: %" PRIu64 " rows of %s could not be decoded", function, damaged,
                table_.name.c_str());
  }
  if (bad != 0) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: %" PRIu64 " indices had no row in %s, which has %" PRIu64 " rows",
                function, bad, table_.name.c_str(), table_.rows());
  }
  return NCAST_OK;
}

// The length of slots that makes the most of the memory: the most rows of a sample that fit, per byte of a way.
uint64_t TableReader::cache_slot_bytes(CachePolicy policy) {
  const TableView& view = table_.view;
  if (view.uncoded) return view.row_bytes;
  constexpr uint64_t samples = 4096;
  const uint64_t rows = table_.rows(), step = rows / samples + 1;
  const uint64_t longest = view.layout == Layout::stride ? view.stride : UINT64_MAX;  // others are in entries
  std::vector<uint64_t> lengths;
  const ReadScope scope(table_.readers);
  for (uint64_t row = 0; row < rows; row += step) {
    Payload payload = {};
    if (!locate(table_, row, &payload)) continue;
    // Slots end with zeros. A payload that does, too, may be longer: then it is not found to fit when it is decoded.
    uint64_t bytes = payload.body_bytes;
    while (bytes != 0 && payload.body[bytes - 1] == 0) --bytes;
    const uint64_t length = (header_bytes + bytes + 15) / 16 * 16;
    if (length <= longest) lengths.push_back(length);
  }
  if (lengths.empty()) return std::min((table_.model->bound() + 15) / 16 * 16, longest);
  std::ranges::sort(lengths);
  uint64_t best = lengths.back();
  double most = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i + 1 < lengths.size() && lengths[i] == lengths[i + 1]) continue;
    const CacheShape shape = {policy, 0, lengths[i], 16, 0};
    const double fitting = static_cast<double>(i + 1) / static_cast<double>(RowCache::set_bytes(shape));
    if (fitting <= most) continue;
    most = fitting;
    best = lengths[i];
  }
  return best;
}

ncast_status TableReader::set_cache(const ncast_store_cache_options* options, cudaStream_t stream) {
  const char* const function = "ncast_store_reader_set_cache";
  const std::lock_guard lock(mutex_);
  const device::DeviceGuard device_guard(device_);
  if (rows_ == nullptr)
    return fail(NCAST_UNSUPPORTED, "%s: %s has the layout blocks, which is not cached", function, table_.name.c_str());
  if (options == nullptr) return rows_->remove_cache(function, stream);
  CacheOptions cache = {};
  cache.policy = options->policy == NCAST_STORE_CACHE_LRU ? CachePolicy::lru : CachePolicy::fixed;
  cache.slot_bytes = cache_slot_bytes(cache.policy);
  cache.bytes = options->bytes;
  if (options->rows != 0) {
    const uint64_t sets = (options->rows + cache_ways - 1) / cache_ways;
    cache.bytes = sets * RowCache::set_bytes({cache.policy, 0, cache.slot_bytes, 0, 0});
  }
  return rows_->set_cache(cache, {options->warm_rows, options->index_bytes, options->warm_count, true, true},
                          table_.rows(), stream);
}

ncast_status TableReader::cache_info(const char* function, ncast_store_cache_info* info, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  const device::DeviceGuard device_guard(device_);
  *info = {};
  if (rows_ == nullptr) return NCAST_OK;
  CacheCounters sums = {};
  if (const ncast_status status = rows_->cache_counters(function, &sums, stream); status != NCAST_OK) return status;
  info->hits = sums.hits;
  info->misses = sums.misses;
  info->fills = sums.fills;
  info->evictions = sums.evictions;
  info->dropped = sums.dropped;
  info->overflows = sums.overflows;
  const RowCache* const cache = rows_->cache();
  if (cache == nullptr) return NCAST_OK;
  info->bytes = cache->bytes();
  info->slot_bytes = cache->sets().slot_bytes;
  info->capacity = cache->ways();
  RETURN_IF_CUDA_FAILED(function, cache->rows(&info->rows, stream));
  return NCAST_OK;
}

}  // namespace narrowcast::store::cuda
