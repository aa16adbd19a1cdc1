// Where the parts of a table are in its memory.
#pragma once

#include "store/table/table.h"

namespace narrowcast::store {

// At the start of the memory: bootstrap::SegmentOwners if it is shared, and room to grow.
inline constexpr uint64_t owners_bytes = 4096;

// The offsets of the parts in the memory of a table that can be changed.
struct Places {
  uint64_t control, lock, readers, changed_rows, data, offsets, row_words, entries, entry_infos, bytes;
  uint64_t data_bytes, entry_count, capacity;
};

// Space for more rows and for changes that the file asks for, and not the caller, is at most as large as the file, or
// 64 MiB.
// Errors: INVALID_ARGUMENT and UNSUPPORTED for options that do not suit the file.
ncast_status plan_places(const Table& table, const OpenOptions& options, Places* places);

// What the header says about the parts, without their places.
void describe_view(const Table& table, TableView& view);
// Sets all that points to the memory.
void set_view(Table& table, const Places& places, uint8_t* memory);

}  // namespace narrowcast::store
