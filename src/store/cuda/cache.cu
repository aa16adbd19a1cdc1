#include <algorithm>
#include <vector>

#include "device/early_launch.cuh"
#include "store/cuda/cache.cuh"
#include "store/cuda/cache.h"
#include "store/cuda/cache_copy.cuh"
#include "store/cuda/cuda_errors.h"

namespace narrowcast::store::cuda {
namespace {

constexpr uint32_t threads = 1024;

#define CACHE_KERNEL(name, call_of_cta)                                                              \
  __global__ void __launch_bounds__(threads) name##_kernel(const __grid_constant__ CacheCall call) { \
    call_of_cta(call);                                                                               \
  }
CACHE_KERNEL(begin, begin_cached_call)
CACHE_KERNEL(look_up, look_up_rows)
CACHE_KERNEL(admit, admit_rows)
CACHE_KERNEL(fill_16, fill_ways<uint4>)
CACHE_KERNEL(fill_4, fill_ways<uint32_t>)
CACHE_KERNEL(fill_1, fill_ways<uint8_t>)
CACHE_KERNEL(divide, divide_admitted_rows)
CACHE_KERNEL(copy_16, copy_rows<uint4>)
CACHE_KERNEL(copy_4, copy_rows<uint32_t>)
CACHE_KERNEL(copy_1, copy_rows<uint8_t>)
#undef CACHE_KERNEL

}  // namespace

uint64_t RowCache::set_bytes(const CacheShape& shape) {
  // The row, the stamp and the first position of each way, and the lock.
  return cache_ways * (shape.slot_bytes + 12) + 4;
}

template <typename T>
cudaError_t RowCache::allocate(T** pointer, uint64_t count, int byte) {
  RETURN_CUDA_ERROR(cudaMalloc(reinterpret_cast<void**>(pointer), count * sizeof(T)));
  return cudaMemset(*pointer, byte, count * sizeof(T));
}

cudaError_t RowCache::allocate(const CacheShape& shape, uint64_t changes) {
  part_bytes_ = shape.part_bytes;
  sets_.policy = shape.policy;
  sets_.slot_bytes = shape.slot_bytes;
  sets_.count = static_cast<uint32_t>(std::min<uint64_t>(shape.bytes / set_bytes(shape), INT32_MAX / cache_ways));
  if (sets_.count == 0) return cudaErrorInvalidValue;
  bytes_ = sets_.count * set_bytes(shape);
  RETURN_CUDA_ERROR(allocate(&sets_.rows, ways(), 0xff));
  RETURN_CUDA_ERROR(allocate(&sets_.stamps, ways(), 0));
  RETURN_CUDA_ERROR(allocate(&sets_.firsts, ways(), 0));
  RETURN_CUDA_ERROR(allocate(&sets_.locks, sets_.count, 0));
  RETURN_CUDA_ERROR(allocate(&sets_.slots, ways() * shape.slot_bytes + 16, 0));
  RETURN_CUDA_ERROR(allocate(&reads_, shape.max_rows, 0));
  RETURN_CUDA_ERROR(allocate(&copies_, shape.max_rows, 0));
  RETURN_CUDA_ERROR(allocate(&retries_, shape.max_rows, 0));
  RETURN_CUDA_ERROR(allocate(&absent_, shape.max_rows, 0));
  RETURN_CUDA_ERROR(allocate(&fill_ways_, shape.max_rows, 0));
  RETURN_CUDA_ERROR(allocate(&fills_, shape.max_rows, 0));
  CacheWords words = {};
  words.changes = changes;
  RETURN_CUDA_ERROR(allocate(&words_, 1, 0));
  RETURN_CUDA_ERROR(cudaMemcpy(words_, &words, sizeof words, cudaMemcpyHostToDevice));
  return cudaDeviceSynchronize();
}

RowCache::~RowCache() {
  for (void* const memory :
       {static_cast<void*>(sets_.rows), static_cast<void*>(sets_.stamps), static_cast<void*>(sets_.firsts),
        static_cast<void*>(sets_.locks), static_cast<void*>(sets_.slots), static_cast<void*>(words_),
        static_cast<void*>(reads_), static_cast<void*>(copies_), static_cast<void*>(retries_),
        static_cast<void*>(absent_), static_cast<void*>(fill_ways_), static_cast<void*>(fills_)})
    cudaFree(memory);
}

cudaError_t RowCache::launch(void (*kernel)(CacheCall), uint64_t items, CacheCall call, uint32_t sms,
                             cudaStream_t stream) const {
  call.sets = sets_;
  call.words = words_;
  call.reads = reads_;
  call.copies = copies_;
  call.retries = retries_;
  call.absent = absent_;
  call.fill_ways = fill_ways_;
  call.fills = fills_;
  const auto ctas = static_cast<uint32_t>(std::clamp<uint64_t>((items + threads - 1) / threads, 1, sms));
  // cudaGetLastError() could return an earlier error of the thread.
  return device::launch(reinterpret_cast<const void*>(kernel), ctas, threads / 32, 0, stream, false, call);
}

cudaError_t RowCache::find(const CacheCall& call, uint32_t sms, cudaStream_t stream) const {
  RETURN_CUDA_ERROR(launch(begin_kernel, 1, call, sms, stream));
  RETURN_CUDA_ERROR(launch(look_up_kernel, call.count, call, sms, stream));
  return launch(admit_kernel, call.count, call, sms, stream);
}

cudaError_t RowCache::look_up(const CacheCall& call, uint32_t sms, cudaStream_t stream) const {
  RETURN_CUDA_ERROR(find(call, sms, stream));
  return launch(divide_kernel, call.count, call, sms, stream);
}

cudaError_t RowCache::fill(const CacheCall& call, uint32_t sms, cudaStream_t stream) const {
  void (*const kernel)(CacheCall) = part_bytes_ == 16  ? fill_16_kernel
                                    : part_bytes_ == 4 ? fill_4_kernel
                                                       : fill_1_kernel;
  RETURN_CUDA_ERROR(find(call, sms, stream));
  return launch(kernel, call.count * 32, call, sms, stream);
}

cudaError_t RowCache::copy(const CacheCall& call, uint32_t unit_bytes, uint32_t sms, cudaStream_t stream) const {
  void (*const kernel)(CacheCall) = unit_bytes == 16 ? copy_16_kernel : unit_bytes >= 4 ? copy_4_kernel : copy_1_kernel;
  return launch(kernel, call.count * 32, call, sms, stream);
}

cudaError_t RowCache::counters(CacheCounters* sums, cudaStream_t stream) const {
  CacheCounters own = {};
  RETURN_CUDA_ERROR(cudaMemcpyAsync(&own, &words_->counters, sizeof own, cudaMemcpyDeviceToHost, stream));
  RETURN_CUDA_ERROR(cudaStreamSynchronize(stream));
  sums->hits += own.hits;
  sums->misses += own.misses;
  sums->copies += own.copies;
  sums->fills += own.fills;
  sums->evictions += own.evictions;
  sums->dropped += own.dropped;
  sums->overflows += own.overflows;
  sums->fetched_bytes += own.fetched_bytes;
  return cudaSuccess;
}

cudaError_t RowCache::forget_misses(cudaStream_t stream) {
  RETURN_CUDA_ERROR(cudaMemsetAsync(&words_->counters.misses, 0, sizeof words_->counters.misses, stream));
  return cudaStreamSynchronize(stream);
}

cudaError_t RowCache::rows(uint64_t* rows, cudaStream_t stream) const {
  std::vector<int32_t> held(ways());
  RETURN_CUDA_ERROR(
      cudaMemcpyAsync(held.data(), sets_.rows, held.size() * sizeof(int32_t), cudaMemcpyDeviceToHost, stream));
  RETURN_CUDA_ERROR(cudaStreamSynchronize(stream));
  *rows = held.size() - static_cast<uint64_t>(std::ranges::count(held, -1));
  return cudaSuccess;
}

}  // namespace narrowcast::store::cuda
