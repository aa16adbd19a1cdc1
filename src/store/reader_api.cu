// The functions of store_cuda.h: argument checks.
#include <cstddef>
#include <memory>

#include "narrowcast/store_cuda.h"
#include "status/error.h"
#include "status/sized_struct.h"
#include "store/cuda/table_reader.h"
#include "store/handle.h"

namespace cuda = narrowcast::store::cuda;
using narrowcast::fail;
using narrowcast::guarded;
using narrowcast::null_argument;

struct ncast_store_reader {
  std::unique_ptr<cuda::TableReader> reader;
};

namespace {

ncast_status read_options(const char* function, const ncast_store_read_options* options, uint32_t known_flags,
                          ncast_store_read_options* read) {
  *read = {};
  if (options == nullptr) return NCAST_OK;
  constexpr size_t shortest_bytes = offsetof(ncast_store_read_options, sms);
  if (const ncast_status status = narrowcast::read_struct("options", *options, shortest_bytes, read);
      status != NCAST_OK)
    return status;
  if ((read->flags & ~known_flags) != 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: options.flags has bits that do not apply: 0x%x", function, read->flags);
  return NCAST_OK;
}

}  // namespace

extern "C" {

ncast_status ncast_store_reader_create(ncast_store* store, const ncast_store_reader_options* options,
                                       ncast_store_reader** reader) {
  constexpr const char* function = "ncast_store_reader_create";
  if (store == nullptr) return null_argument(function, "store");
  if (reader == nullptr) return null_argument(function, "reader");
  return guarded(function, [&] {
    ncast_store_reader_options given = {};
    if (options != nullptr) {
      constexpr size_t shortest_bytes = offsetof(ncast_store_reader_options, max_rows);
      if (const ncast_status status = narrowcast::read_struct("options", *options, shortest_bytes, &given);
          status != NCAST_OK)
        return status;
    }
    auto opened = std::make_unique<ncast_store_reader>();
    const ncast_status status = cuda::TableReader::create(*store->table, {given.max_rows, given.sms}, &opened->reader);
    if (status == NCAST_OK) *reader = opened.release();
    return status;
  });
}

void ncast_store_reader_destroy(ncast_store_reader* reader) { delete reader; }

ncast_status ncast_store_reader_gather(ncast_store_reader* reader, const void* indices, size_t index_bytes,
                                       uint64_t count, void* out, uint64_t out_stride,
                                       const ncast_store_read_options* options, ncast_stream stream) {
  constexpr const char* function = "ncast_store_reader_gather";
  if (reader == nullptr) return null_argument(function, "reader");
  if (index_bytes != 4 && index_bytes != 8)
    return fail(NCAST_INVALID_ARGUMENT, "%s: index_bytes is %zu, not 4 or 8", function, index_bytes);
  if (indices == nullptr && count != 0) return null_argument(function, "indices");
  return guarded(function, [&] {
    ncast_store_read_options read;
    constexpr uint32_t flags = NCAST_STORE_HOST_INDICES | NCAST_STORE_INDEX_ORDER;
    if (const ncast_status status = read_options(function, options, flags, &read); status != NCAST_OK) return status;
    const bool on_host = (read.flags & NCAST_STORE_HOST_INDICES) != 0;
    const bool in_order = (read.flags & NCAST_STORE_INDEX_ORDER) != 0;
    return reader->reader->gather({indices, static_cast<uint32_t>(index_bytes), count, on_host, in_order},
                                  {out, out_stride, read.sms, static_cast<cudaStream_t>(stream)});
  });
}

ncast_status ncast_store_reader_fetch(ncast_store_reader* reader, uint64_t first, uint64_t count, int64_t step,
                                      void* out, uint64_t out_stride, const ncast_store_read_options* options,
                                      ncast_stream stream) {
  constexpr const char* function = "ncast_store_reader_fetch";
  if (reader == nullptr) return null_argument(function, "reader");
  return guarded(function, [&] {
    ncast_store_read_options read;
    if (const ncast_status status = read_options(function, options, 0, &read); status != NCAST_OK) return status;
    return reader->reader->fetch(first, count, step, {out, out_stride, read.sms, static_cast<cudaStream_t>(stream)});
  });
}

ncast_status ncast_store_reader_get_counters(ncast_store_reader* reader, ncast_store_reader_counters* counters,
                                             ncast_stream stream) {
  constexpr const char* function = "ncast_store_reader_get_counters";
  if (reader == nullptr) return null_argument(function, "reader");
  return guarded(function, [&] {
    ncast_store_reader_counters filled;
    if (const ncast_status status = reader->reader->counters(function, &filled, static_cast<cudaStream_t>(stream));
        status != NCAST_OK)
      return status;
    return narrowcast::fill_struct(function, "counters", filled, counters);
  });
}

ncast_status ncast_store_reader_check(ncast_store_reader* reader, ncast_stream stream) {
  constexpr const char* function = "ncast_store_reader_check";
  if (reader == nullptr) return null_argument(function, "reader");
  return guarded(function, [&] { return reader->reader->check(static_cast<cudaStream_t>(stream)); });
}

ncast_status ncast_store_reader_set_cache(ncast_store_reader* reader, const ncast_store_cache_options* options,
                                          ncast_stream stream) {
  constexpr const char* function = "ncast_store_reader_set_cache";
  if (reader == nullptr) return null_argument(function, "reader");
  return guarded(function, [&] {
    ncast_store_cache_options read = {};
    if (options == nullptr) return reader->reader->set_cache(nullptr, static_cast<cudaStream_t>(stream));
    constexpr size_t shortest_bytes = offsetof(ncast_store_cache_options, rows);
    if (const ncast_status status = narrowcast::read_struct("options", *options, shortest_bytes, &read);
        status != NCAST_OK)
      return status;
    if (read.policy < NCAST_STORE_CACHE_STATIC || read.policy > NCAST_STORE_CACHE_LRU)
      return fail(NCAST_INVALID_ARGUMENT, "%s: policy %d is unknown", function, static_cast<int>(read.policy));
    if (read.warm_rows != nullptr && read.index_bytes != 4 && read.index_bytes != 8)
      return fail(NCAST_INVALID_ARGUMENT, "%s: index_bytes is %u, not 4 or 8", function, read.index_bytes);
    if (read.bytes != 0 && read.rows != 0)
      return fail(NCAST_INVALID_ARGUMENT, "%s: bytes and rows are both given", function);
    if (read.rows > INT32_MAX) return fail(NCAST_INVALID_ARGUMENT, "%s: rows is 2^31 or more", function);
    return reader->reader->set_cache(&read, static_cast<cudaStream_t>(stream));
  });
}

ncast_status ncast_store_reader_get_cache(ncast_store_reader* reader, ncast_store_cache_info* info,
                                          ncast_stream stream) {
  constexpr const char* function = "ncast_store_reader_get_cache";
  if (reader == nullptr) return null_argument(function, "reader");
  return guarded(function, [&] {
    ncast_store_cache_info filled;
    if (const ncast_status status = reader->reader->cache_info(function, &filled, static_cast<cudaStream_t>(stream));
        status != NCAST_OK)
      return status;
    return narrowcast::fill_struct(function, "info", filled, info);
  });
}

}  // extern "C"
