// The memory of tables, registered with CUDA.
#pragma once

#include "narrowcast/types.h"
#include "store/table/table.h"

namespace narrowcast::store::cuda {

// Registers the memory of a table for all GPUs, unless it is. It is unregistered before it is unmapped. The pages of a
// file are verified first, because readers on a GPU check no checksums.
// Errors: CUDA_ERROR; CORRUPT if the file is damaged.
ncast_status register_memory(const char* function, Table& table);

}  // namespace narrowcast::store::cuda
