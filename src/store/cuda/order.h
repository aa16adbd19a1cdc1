// What runs before a gather kernel: the start of a call, and the order in which its rows are read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "store/cuda/gather_arguments.h"

namespace narrowcast::store::cuda {

// Announces a call to the writer, and notes in `state` (device memory) what the call sees of the table.
cudaError_t start_call(const CallWords& reader, const TableWords& table, TableState* state, cudaStream_t stream);

// Orders indices by page: page = row >> page_shift. Equal pages keep their order. Neighbouring rows of large tables
// share address translations, which otherwise limit the rate of random rows (docs/design/store_kernels.md).
struct PageOrder {
  uint32_t page_shift;
  uint32_t page_bits;  // bits of the largest page number; invalid indices count as the last page
};
// Device memory for count rows.
size_t order_workspace_bytes(uint64_t count, const PageOrder& order);
// Writes the positions of the indices in order to the beginning of `workspace`, 256-byte aligned. Allocates nothing.
cudaError_t order_by_page(const void* indices, uint32_t index_bytes, uint64_t count, const PageOrder& order,
                          void* workspace, size_t workspace_bytes, cudaStream_t stream);

}  // namespace narrowcast::store::cuda
