// Gathers with a cache in the GPU's memory.
#include <algorithm>
#include <atomic>
#include <cinttypes>

#include "status/error.h"
#include "store/cuda/cuda_errors.h"
#include "store/cuda/reader.h"
#include "store/cuda/shape.h"

namespace narrowcast::store::cuda {

CacheCall Reader::cache_call() const {
  CacheCall call = {};
  call.state = base_.reader.state;
  call.fixed_state = base_.state;
  call.places = base_.places;
  call.changes = changes_;
  call.changed_rows = changed_rows_;
  call.redirects = words_.redirects;
  return call;
}

cudaError_t Reader::gather_cached(const GatherArguments& call, const RowTarget& target) {
  CacheCall cached = cache_call();
  cached.indices = call.selection.indices;
  cached.index_bytes = call.selection.index_bytes;
  cached.entries = call.selection.entries;
  cached.count = call.selection.count;
  cached.may_evict = true;
  cached.out = call.selection.out;
  cached.out_stride = call.selection.out_stride;
  cached.row_bytes = format_.row_bytes;
  const uint32_t sms = sms_of(target);
  RETURN_CUDA_ERROR(cache_->look_up(cached, sms, target.stream));
  CacheWords* const words = cache_->words();

  // Hits and misses at the same time: the SMs decode hits while the link brings misses.
  GatherArguments reads = call;
  reads.reader.finished = nullptr;
  reads.shape = cached_shape_;
  reads.selection.entries = cache_->reads();
  reads.selection.device_count = &words->reads;
  const CacheSets& sets = cache_->sets();
  CachedRows& rows = reads.selection.cached;
  rows.slots = sets.slots;
  rows.slot_bytes = static_cast<uint32_t>(sets.slot_bytes);
  rows.ways = static_cast<uint32_t>(cache_->ways());
  rows.unit_bytes = static_cast<uint32_t>(cache_->part_bytes());
  rows.rows = sets.rows;
  rows.has_redirects = &words->has_redirects;
  rows.fill_ways = cache_->fill_ways();
  rows.retries = cache_->retries();
  rows.retry_count = &words->retries;
  RETURN_CUDA_ERROR(launch_gather(kernel_, reads, sms, target.stream));

  GatherArguments retries = call;
  retries.selection.entries = cache_->retries();
  retries.selection.device_count = &words->retries;
  RETURN_CUDA_ERROR(launch_gather(kernel_, retries, sms, target.stream));
  return cache_->copy(cached, call.selection.unit_bytes, sms, target.stream);
}

ncast_status Reader::set_cache(const CacheOptions& options, const Indices& warm, uint64_t rows, cudaStream_t stream) {
  const char* const function = "ncast_store_reader_set_cache";
  if (table_.capacity > INT32_MAX)
    return fail(NCAST_UNSUPPORTED, "%s: tables of 2^31 or more rows cannot be cached", function);
  CacheShape shape = {};
  shape.policy = options.policy;
  shape.bytes = options.bytes;
  shape.slot_bytes = options.slot_bytes;
  const uint64_t common = lowest_bit(options.slot_bytes | (table_.stride != 0 ? table_.stride : table_.unit_bytes));
  shape.part_bytes = common >= 16 ? 16 : common >= 4 ? 4 : 1;
  shape.max_rows = max_rows_;
  if (shape.bytes < RowCache::set_bytes(shape))
    return fail(NCAST_TOO_SMALL, "%s: a cache needs at least %" PRIu64 " bytes, but may have %" PRIu64, function,
                RowCache::set_bytes(shape), shape.bytes);
  const uint64_t slot_bytes = std::max<uint64_t>(base_.shape.slot_bytes, options.slot_bytes);
  GatherShape gather_shape = shape_of(slot_bytes, common, false, true);
  if (gather_shape.warps == 0) return fail(NCAST_UNSUPPORTED, "%s: rows are too long for a cache", function);
  auto cache = std::make_unique<RowCache>();
  const uint64_t changes =
      table_.changes != nullptr ? std::atomic_ref(*const_cast<uint64_t*>(table_.changes)).load() : 0;
  RETURN_IF_CUDA_FAILED(function, cache->allocate(shape, changes));
  RETURN_IF_CUDA_FAILED(function, learn_rows(rows, stream));
  // The cache before stays until the new one is complete.
  std::swap(cache_, cache);
  std::swap(cached_shape_, gather_shape);
  cudaError_t error = warm_cache(warm, options.policy == CachePolicy::fixed ? rows : 0, stream);
  if (error == cudaSuccess && cache != nullptr) error = cache->counters(&past_, stream);
  if (error == cudaSuccess) return NCAST_OK;
  std::swap(cache_, cache);
  std::swap(cached_shape_, gather_shape);
  return failed(function, error);
}

// first_rows: how many rows of the table are taken if there are no others.
cudaError_t Reader::warm_cache(const Indices& warm, uint64_t first_rows, cudaStream_t stream) {
  // Twice the rows that fit, because sets fill up at different times.
  const uint64_t most = std::min(warm.data != nullptr ? warm.count : first_rows, 2 * cache_->ways());
  const uint64_t at_a_time = std::min(max_rows_, warmed_at_a_time(cache_->ways()));
  for (uint64_t first = 0; first < most; first += at_a_time) {
    CacheCall call = cache_call();
    call.count = std::min(at_a_time, most - first);
    call.first = first;
    if (warm.data != nullptr) {
      const char* const piece = static_cast<const char*>(warm.data) + first * warm.index_bytes;
      call.index_bytes = warm.index_bytes;
      RETURN_CUDA_ERROR(index_copies_.copy(piece, call.count * warm.index_bytes, stream, &call.indices));
    }
    RETURN_CUDA_ERROR(fill_cache(call, stream));
  }
  return cache_->forget_misses(stream);
}

ncast_status Reader::remove_cache(const char* function, cudaStream_t stream) {
  if (cache_ == nullptr) return NCAST_OK;
  RETURN_IF_CUDA_FAILED(function, cache_->counters(&past_, stream));
  cache_.reset();
  return NCAST_OK;
}

ncast_status Reader::cache_counters(const char* function, CacheCounters* counters, cudaStream_t stream) {
  *counters = past_;
  if (cache_ != nullptr) RETURN_IF_CUDA_FAILED(function, cache_->counters(counters, stream));
  return NCAST_OK;
}

cudaError_t Reader::fill_cache(const CacheCall& call, cudaStream_t stream) {
  RETURN_CUDA_ERROR(start(stream));
  RETURN_CUDA_ERROR(cache_->fill(call, std::min(sms_, machine_.sms), stream));
  // Without rows, a gather only ends the call.
  return launch_gather(kernel_, arguments(nullptr, 0), 1, stream);
}

}  // namespace narrowcast::store::cuda
