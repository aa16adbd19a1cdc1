// The functions of store.h: argument checks.
#include <cinttypes>

#include "status/error.h"
#include "status/sized_struct.h"
#include "status/text.h"
#include "store/file/header.h"
#include "store/handle.h"

using namespace narrowcast;
using store::RowList;
using store::Table;

namespace {

// Gives a text to the caller, if it wants one.
void give_text(ncast_text** text, std::string content) {
  if (text != nullptr) *text = new ncast_text{std::move(content)};
}

ncast_status check_store(const char* function, const ncast_store* handle) {
  return handle != nullptr ? NCAST_OK : null_argument(function, "store");
}

ncast_status check_threads(const char* function, int threads) {
  if (threads >= 0) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "%s: threads is %d, not 0 or more", function, threads);
}

// Memory of `count` rows of `row_bytes` bytes.
ncast_status check_memory(const char* function, const char* name, const void* memory, uint64_t stride,
                          uint64_t row_bytes, uint64_t count) {
  if (count == 0) return NCAST_OK;
  if (memory == nullptr) return null_argument(function, name);
  if (stride < row_bytes) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: the stride of %s is %" PRIu64 ", but a row has %" PRIu64 " bytes",
                function, name, stride, row_bytes);
  }
  if (count > UINT64_MAX / 2 / stride) return fail(NCAST_INVALID_ARGUMENT, "%s: %s is too large", function, name);
  return NCAST_OK;
}

ncast_status check_indices(const char* function, const void* indices, size_t index_bytes, uint64_t count) {
  if (index_bytes != 4 && index_bytes != 8)
    return fail(NCAST_INVALID_ARGUMENT, "%s: index_bytes is %zu, not 4 or 8", function, index_bytes);
  return indices != nullptr || count == 0 ? NCAST_OK : null_argument(function, "indices");
}

ncast_status read(const char* function, Table& table, const RowList& list, uint64_t count, void* out,
                  uint64_t out_stride, int threads) {
  if (ncast_status status = check_threads(function, threads)) return status;
  if (ncast_status status = check_memory(function, "out", out, out_stride, table.view.row_bytes, count)) return status;
  if (ncast_status status = store::check_rows(function, list, count, table.rows())) return status;
  if (count == 0) return NCAST_OK;
  auto* const bytes = static_cast<uint8_t*>(out);
  return store::reading(table, [&] {
    return table.view.layout == store::Layout::blocks
               ? store::read_frames(function, table, list, count, bytes, out_stride, threads)
               : store::read_rows(function, table, list, count, bytes, out_stride, threads);
  });
}

ncast_status read_build_options(const char* function, const ncast_store_build_options* options,
                                store::BuildOptions* read) {
  ncast_store_build_options given = {};
  if (options == nullptr) return null_argument(function, "options");
  if (ncast_status status = read_struct("options", *options, offsetof(ncast_store_build_options, layout), &given))
    return status;
  if (ncast_dtype_bytes(given.dtype) == 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: dtype %d is not a value type", function, static_cast<int>(given.dtype));
  if (given.layout < NCAST_STORE_AUTO_LAYOUT || given.layout > NCAST_STORE_BLOCKS)
    return fail(NCAST_INVALID_ARGUMENT, "%s: layout %d is unknown", function, static_cast<int>(given.layout));
  if (given.row_rank > NCAST_STORE_MAX_ROW_RANK) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: rows have %u dimensions, but %d are the most", function, given.row_rank,
                NCAST_STORE_MAX_ROW_RANK);
  }
  uint64_t bytes = ncast_dtype_bytes(given.dtype);
  for (uint32_t i = 0; i < given.row_rank; ++i) {
    const uint64_t extent = given.row_shape[i];
    if (extent == 0 || extent > store::file::max_row_bytes / bytes)
      return fail(NCAST_INVALID_ARGUMENT, "%s: row_shape[%u] is %" PRIu64 ": rows have 1 to 2^40 bytes", function, i,
                  extent);
    bytes *= extent;
  }
  if (given.spare < -1 || given.spare > static_cast<int64_t>(store::file::max_entries))
    return fail(NCAST_INVALID_ARGUMENT, "%s: spare is %" PRId64 ", not -1 to 2^30", function, given.spare);
  if (given.capacity > store::file::max_rows || given.rows > store::file::max_rows)
    return fail(NCAST_INVALID_ARGUMENT, "%s: a store has at most 2^40 rows", function);
  if (ncast_status status = check_threads(function, given.threads)) return status;
  read->dtype = given.dtype;
  read->layout = given.layout;
  read->row_shape.assign(given.row_shape, given.row_shape + given.row_rank);
  read->capacity = given.capacity;
  read->spare = given.spare;
  read->rows = given.rows;
  if (given.codec != nullptr) read->codec = given.codec;
  if (given.metadata != nullptr) read->metadata = given.metadata;
  read->threads = given.threads;
  return NCAST_OK;
}

ncast_status add(const char* function, ncast_store_builder* builder, const void* rows, uint64_t row_stride,
                 uint64_t count, ncast_status (store::Builder::*call)(const store::RowBlock&)) {
  if (builder == nullptr) return null_argument(function, "builder");
  if (ncast_status status = check_memory(function, "rows", rows, row_stride, builder->builder.row_bytes(), count))
    return status;
  return guarded(function,
                 [&] { return (builder->builder.*call)({static_cast<const uint8_t*>(rows), row_stride, count}); });
}

}  // namespace

extern "C" {

ncast_status ncast_store_builder_create(int file, const ncast_store_build_options* options,
                                        ncast_store_builder** builder) {
  constexpr const char* function = "ncast_store_builder_create";
  if (builder == nullptr) return null_argument(function, "builder");
  if (file < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: file is %d, not a descriptor", function, file);
  return guarded(function, [&] {
    store::BuildOptions read;
    if (ncast_status status = read_build_options(function, options, &read)) return status;
    *builder = new ncast_store_builder{store::Builder(file, std::move(read))};
    return NCAST_OK;
  });
}

ncast_status ncast_store_builder_sample(ncast_store_builder* builder, const void* rows, uint64_t row_stride,
                                        uint64_t count) {
  return add("ncast_store_builder_sample", builder, rows, row_stride, count, &store::Builder::sample);
}

ncast_status ncast_store_builder_add(ncast_store_builder* builder, const void* rows, uint64_t row_stride,
                                     uint64_t count) {
  return add("ncast_store_builder_add", builder, rows, row_stride, count, &store::Builder::add);
}

ncast_status ncast_store_builder_finish(ncast_store_builder* builder, ncast_text** report) {
  constexpr const char* function = "ncast_store_builder_finish";
  if (builder == nullptr) return null_argument(function, "builder");
  return guarded(function, [&] {
    std::string text;
    if (ncast_status status = builder->builder.finish(&text)) return status;
    give_text(report, std::move(text));
    return NCAST_OK;
  });
}

void ncast_store_builder_destroy(ncast_store_builder* builder) { delete builder; }

ncast_status ncast_store_open(const char* path, const ncast_store_open_options* options, ncast_store** handle) {
  constexpr const char* function = "ncast_store_open";
  if (path == nullptr) return null_argument(function, "path");
  if (handle == nullptr) return null_argument(function, "store");
  ncast_store_open_options given = {};
  if (options != nullptr) {
    constexpr size_t shortest_bytes = offsetof(ncast_store_open_options, flags);
    if (ncast_status status = read_struct("options", *options, shortest_bytes, &given)) return status;
  }
  if (given.host < NCAST_STORE_PINNED || given.host > NCAST_STORE_SHARED)
    return fail(NCAST_INVALID_ARGUMENT, "%s: host %d is unknown", function, static_cast<int>(given.host));
  if ((given.flags & ~uint32_t{NCAST_STORE_ALLOW_DAMAGE}) != 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: flags has unknown bits: 0x%x", function, given.flags);
  if (given.spare_plus_one < 0 || given.numa_node_plus_one < 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: an option is negative", function);
  if (ncast_status status = check_threads(function, given.threads)) return status;
  return guarded(function, [&] {
    const store::OpenOptions open{.host = given.host,
                                  .allow_damage = (given.flags & NCAST_STORE_ALLOW_DAMAGE) != 0,
                                  .numa_node = given.numa_node_plus_one - 1,
                                  .threads = given.threads,
                                  .capacity = given.capacity,
                                  .spare = given.spare_plus_one - 1};
    auto opened = std::make_unique<ncast_store>();
    if (ncast_status status = store::open_table(path, open, &opened->table)) return status;
    *handle = opened.release();
    return NCAST_OK;
  });
}

void ncast_store_close(ncast_store* handle) { delete handle; }

ncast_status ncast_store_describe(const ncast_store* handle, ncast_store_info* info) {
  constexpr const char* function = "ncast_store_describe";
  if (ncast_status status = check_store(function, handle)) return status;
  const Table& table = *handle->table;
  const store::TableView& view = table.view;
  ncast_store_info filled = {};
  filled.dtype = static_cast<ncast_dtype>(table.header.dtype);
  filled.layout = static_cast<ncast_store_layout>(view.layout);
  filled.host = table.host;
  filled.row_rank = table.header.row_rank;
  std::copy_n(table.header.row_shape, NCAST_STORE_MAX_ROW_RANK, filled.row_shape);
  filled.rows = table.rows();
  filled.capacity = view.capacity;
  filled.row_bytes = view.row_bytes;
  const bool blocks = view.layout == store::Layout::blocks;
  filled.stride = view.layout == store::Layout::stride ? view.stride : 0;
  filled.entry_stride = view.entry_stride;
  filled.entries = view.entry_count;
  const uint64_t used = std::atomic_ref<uint64_t>(view.control->entries_used).load();
  filled.free_entries = view.entry_count - used;
  filled.stored_bytes = used * view.entry_stride;
  if (blocks)
    filled.stored_bytes += view.data_bytes + table.header.sections[store::file::offsets].bytes;
  else if (view.layout == store::Layout::packed)
    filled.stored_bytes +=
        (table.mapped != nullptr ? view.data_bytes : uint64_t{view.offsets[filled.rows]} * view.unit) +
        4 * (filled.rows + 1);
  else
    filled.stored_bytes += filled.rows * view.stride;
  filled.memory_bytes = view.memory_bytes;
  return fill_struct(function, "info", filled, info);
}

ncast_status ncast_store_codec(const ncast_store* handle, ncast_text** codec) {
  constexpr const char* function = "ncast_store_codec";
  if (ncast_status status = check_store(function, handle)) return status;
  return make_text(function, codec, [&] { return store::codec_text(*handle->table); });
}

ncast_status ncast_store_metadata(const ncast_store* handle, ncast_text** metadata) {
  constexpr const char* function = "ncast_store_metadata";
  if (ncast_status status = check_store(function, handle)) return status;
  return make_text(function, metadata, [&] { return handle->table->metadata; });
}

ncast_status ncast_store_get_counters(const ncast_store* handle, ncast_store_counters* counters) {
  constexpr const char* function = "ncast_store_get_counters";
  if (ncast_status status = check_store(function, handle)) return status;
  const Table& table = *handle->table;
  ncast_store_counters filled = {};
  filled.gathers = table.counters.gathers;
  filled.fetches = table.counters.fetches;
  filled.rows_read = table.counters.rows_read;
  filled.raw_bytes_read = filled.rows_read * table.view.row_bytes;
  filled.overflow_rows_read = table.counters.overflow_rows;
  filled.damaged_rows_read = table.counters.damaged_rows;
  filled.updates = table.counters.updates;
  filled.appends = table.counters.appends;
  filled.rows_updated = table.counters.rows_updated;
  filled.rows_appended = table.counters.rows_appended;
  filled.grace_waits = table.readers.grace_waits();
  return fill_struct(function, "counters", filled, counters);
}

ncast_status ncast_store_gather(ncast_store* handle, const void* indices, size_t index_bytes, uint64_t count, void* out,
                                uint64_t out_stride, int threads) {
  constexpr const char* function = "ncast_store_gather";
  if (ncast_status status = check_store(function, handle)) return status;
  if (ncast_status status = check_indices(function, indices, index_bytes, count)) return status;
  if (count == 0) return NCAST_OK;
  return guarded(function, [&] {
    ++handle->table->counters.gathers;
    const RowList list{.indices = indices, .index_bytes = index_bytes};
    return read(function, *handle->table, list, count, out, out_stride, threads);
  });
}

ncast_status ncast_store_fetch(ncast_store* handle, uint64_t first, uint64_t count, int64_t step, void* out,
                               uint64_t out_stride, int threads) {
  constexpr const char* function = "ncast_store_fetch";
  if (ncast_status status = check_store(function, handle)) return status;
  return guarded(function, [&] {
    ++handle->table->counters.fetches;
    const RowList list{.first = first, .step = step};
    return read(function, *handle->table, list, count, out, out_stride, threads);
  });
}

ncast_status ncast_store_update(ncast_store* handle, const void* indices, size_t index_bytes, uint64_t count,
                                const void* rows, uint64_t row_stride, int threads) {
  constexpr const char* function = "ncast_store_update";
  if (ncast_status status = check_store(function, handle)) return status;
  if (ncast_status status = check_threads(function, threads)) return status;
  if (ncast_status status = check_indices(function, indices, index_bytes, count)) return status;
  Table& table = *handle->table;
  if (ncast_status status = check_memory(function, "rows", rows, row_stride, table.view.row_bytes, count))
    return status;
  return guarded(function, [&] {
    const RowList list{.indices = indices, .index_bytes = index_bytes};
    return store::update_rows(table, list, count, static_cast<const uint8_t*>(rows), row_stride, threads);
  });
}

ncast_status ncast_store_append(ncast_store* handle, const void* rows, uint64_t row_stride, uint64_t count,
                                uint64_t* first, int threads) {
  constexpr const char* function = "ncast_store_append";
  if (ncast_status status = check_store(function, handle)) return status;
  if (ncast_status status = check_threads(function, threads)) return status;
  Table& table = *handle->table;
  if (ncast_status status = check_memory(function, "rows", rows, row_stride, table.view.row_bytes, count))
    return status;
  return guarded(function, [&] {
    return store::append_rows(table, static_cast<const uint8_t*>(rows), row_stride, count, first, threads);
  });
}

ncast_status ncast_store_save(ncast_store* handle, int file) {
  constexpr const char* function = "ncast_store_save";
  if (ncast_status status = check_store(function, handle)) return status;
  if (file < 0) return fail(NCAST_INVALID_ARGUMENT, "%s: file is %d, not a descriptor", function, file);
  return guarded(function, [&] {
    return store::reading(*handle->table, [&] { return store::save_table(*handle->table, file); });
  });
}

ncast_status ncast_store_verify(ncast_store* handle, int threads, ncast_text** report) {
  constexpr const char* function = "ncast_store_verify";
  if (ncast_status status = check_store(function, handle)) return status;
  if (ncast_status status = check_threads(function, threads)) return status;
  return guarded(function, [&] {
    std::string text;
    Table& table = *handle->table;
    const ncast_status status = store::reading(table, [&] { return store::verify_table(table, threads, &text); });
    give_text(report, std::move(text));
    return status;
  });
}

}  // extern "C"
