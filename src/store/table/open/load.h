// Reads the rows of a table file to memory.
#pragma once

#include <functional>

#include "store/table/open/table_file.h"

namespace narrowcast::store {

// Reads and verifies rows, offsets and overflow entries, whose places in memory are set.
//   progress: called after every few MiB, on any thread.
// Errors: CORRUPT, SYSTEM_ERROR.
ncast_status load(const TableFile& file, Table& table, const OpenOptions& options,
                  const std::function<void()>& progress);

// Offsets in memory must be valid whatever the file says: all code after this relies on them. Error: CORRUPT.
ncast_status check_offsets(const Table& table);

}  // namespace narrowcast::store
