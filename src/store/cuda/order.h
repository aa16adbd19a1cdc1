// What runs before a gather kernel: the start of a call, and the order in which its rows are read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "store/cuda/gather_arguments.h"
#include "store/cuda/launch.h"
#include "store/cuda/order_arguments.h"

namespace narrowcast::store::cuda {

// Announces a call to the writer, and notes in `state` (device memory) what the call sees of the table.
cudaError_t start_call(const CallWords& reader, const TableWords& table, TableState* state, cudaStream_t stream);

// Device memory for the order of `count` rows.
size_t order_workspace_bytes(uint64_t count, const Pages& pages);
// Allows the kernels to use all shared memory. Called before order_by_page().
cudaError_t prepare_order(const GatherMachine& machine);
// Writes an entry for each index to the beginning of `workspace` (256-byte aligned), ordered by page and in any order
// within a page. The table has at most max_ordered_rows rows. Allocates nothing. sms: SMs to use, at most.
cudaError_t order_by_page(const void* indices, uint32_t index_bytes, uint64_t count, const Pages& pages,
                          void* workspace, const GatherMachine& machine, uint32_t sms, cudaStream_t stream);

}  // namespace narrowcast::store::cuda
