#include "store/table/open/places.h"

#include <algorithm>
#include <cinttypes>

#include "status/error.h"
#include "store/file/header.h"

namespace narrowcast::store {
namespace {

using file::aligned;

constexpr uint64_t readable_after = 128;       // bytes behind every part
constexpr uint64_t unasked_bytes = 64u << 20;  // that a small file may reserve

// A number of rows or entries that a file reserves, of `bytes` each.
uint64_t reserved(const file::Header& header, uint64_t wanted, uint64_t bytes) {
  uint64_t stored_bytes = 0;
  for (const file::Section& section : header.sections) stored_bytes += section.bytes;
  return std::min(wanted, std::max(stored_bytes, unasked_bytes) / std::max(bytes, uint64_t{1}));
}

}  // namespace

ncast_status plan_places(const Table& table, const OpenOptions& options, Places* places) {
  const file::Header& header = table.header;
  const bool blocks = header.layout == file::blocks_layout;
  if (options.capacity != 0 && options.capacity < header.rows) {
    return fail(NCAST_INVALID_ARGUMENT, "capacity is %" PRIu64 ", but %s has %" PRIu64 " rows", options.capacity,
                table.name.c_str(), header.rows);
  }
  if (blocks && (options.capacity > header.rows || options.spare > 0))
    return fail(NCAST_UNSUPPORTED, "%s has the layout blocks, which is read-only", table.name.c_str());
  const uint64_t row_bytes =
      header.layout == file::packed_layout ? aligned(table.model->bound(), header.unit) + 4 : header.stride;
  places->capacity = options.capacity != 0 ? options.capacity
                                           : header.rows + reserved(header, header.capacity - header.rows, row_bytes);
  const uint64_t spare = options.spare >= 0 ? static_cast<uint64_t>(options.spare)
                                            : reserved(header, header.spare, header.entry_stride + sizeof(EntryInfo));
  places->entry_count = header.entries + spare;
  if (places->entry_count > file::max_entries || places->capacity > file::max_rows ||
      places->capacity > UINT64_MAX / 16 / std::max(header.entry_stride, uint64_t{1}))
    return fail(NCAST_INVALID_ARGUMENT, "capacity or spare is too large");
  places->data_bytes = header.sections[file::data].bytes;
  const uint64_t more_rows = places->capacity - header.rows;
  if (header.layout == file::stride_layout) places->data_bytes = places->capacity * header.stride;
  if (header.layout == file::packed_layout) {
    places->data_bytes += more_rows * aligned(table.model->bound(), header.unit);
    if (places->data_bytes / header.unit > UINT32_MAX)
      return fail(NCAST_INVALID_ARGUMENT, "capacity is too large for the layout packed with units of %u bytes",
                  header.unit);
  }
  uint64_t end = 0;
  const auto place = [&](uint64_t bytes, uint64_t alignment) {
    const uint64_t begin = aligned(end, alignment);
    end = begin + bytes + readable_after;
    return begin;
  };
  place(owners_bytes - readable_after, 1);
  places->control = place(sizeof(ControlWords), 64);
  places->lock = place(sizeof(WriterLock), 64);
  places->readers = place(max_readers * sizeof(ReaderWords), 64);
  places->changed_rows = place(changes_kept * sizeof(uint64_t), 64);
  places->data = place(places->data_bytes, file::page_bytes);
  const uint64_t offsets = header.layout == file::packed_layout ? 4 * (places->capacity + 1)
                           : blocks                             ? header.sections[file::offsets].bytes
                                                                : 0;
  places->offsets = place(offsets, file::page_bytes);
  places->row_words = place(header.uncoded != 0 && places->entry_count != 0 ? 4 * places->capacity : 0, 128);
  places->entries = place(places->entry_count * header.entry_stride, file::page_bytes);
  places->entry_infos = place(places->entry_count * sizeof(EntryInfo), 128);
  places->bytes = aligned(end, file::page_bytes);
  return NCAST_OK;
}

void describe_view(const Table& table, TableView& view) {
  const file::Header& header = table.header;
  view.layout = static_cast<Layout>(header.layout);
  view.uncoded = header.uncoded != 0;
  view.row_bytes = file::row_bytes_of(header);
  view.capacity = header.rows;
  view.data_bytes = header.sections[file::data].bytes;
  view.stride = header.stride;
  view.unit = header.unit;
  view.entry_stride = header.entry_stride;
  view.entry_count = header.entries;
}

void set_view(Table& table, const Places& places, uint8_t* memory) {
  TableView& view = table.view;
  describe_view(table, view);
  view.memory = memory;
  view.memory_bytes = places.bytes;
  view.control = reinterpret_cast<ControlWords*>(memory + places.control);
  view.readers = reinterpret_cast<ReaderWords*>(memory + places.readers);
  view.changed_rows = reinterpret_cast<uint64_t*>(memory + places.changed_rows);
  view.capacity = places.capacity;
  view.data = memory + places.data;
  view.data_bytes = places.data_bytes;
  view.offsets = reinterpret_cast<uint32_t*>(memory + places.offsets);
  view.row_words =
      view.uncoded && places.entry_count != 0 ? reinterpret_cast<uint32_t*>(memory + places.row_words) : nullptr;
  view.entries = memory + places.entries;
  view.entry_count = places.entry_count;
  table.entry_infos = reinterpret_cast<EntryInfo*>(memory + places.entry_infos);
  table.writer = reinterpret_cast<WriterLock*>(memory + places.lock);
}

}  // namespace narrowcast::store
