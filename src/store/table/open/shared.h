// Tables in shared memory.
#pragma once

#include "store/table/open/table_file.h"

namespace narrowcast::store {

// Joins the processes that have the file open, or loads it if there are none.
ncast_status open_shared(const TableFile& file, const OpenOptions& options, Table& table);

// The inverse for a table that has owners. The last process to leave removes the shared memory.
void leave_shared(Table& table);

}  // namespace narrowcast::store
