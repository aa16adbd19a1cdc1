// Device code of order.cu.
#pragma once

#include <cstdint>

#include "../../device/ptx/system_memory.cuh"
#include "gather_arguments.h"

namespace narrowcast::store::cuda {

// The writer publishes a change and then looks at `started`; a reader stores `started` and then reads the table. Both
// need a fence in between that orders stores before loads, so that at least one of them sees the other.
__device__ inline void start_call_by_thread(const CallWords& reader, const TableWords& table, TableState* state) {
  device::store_release(reader.started, static_cast<uint64_t>(++*reader.calls));
  device::fence_system_total();
  state->row_count = min(device::load_acquire(table.row_count), table.known_rows);
  state->has_redirects = table.redirects != nullptr && device::load_acquire(table.redirects) != 0;
}

// The page of an index: the last page for indices that are out of range.
__device__ inline uint32_t page_of(const void* indices, uint32_t index_bytes, uint64_t position, uint32_t page_shift,
                                   uint32_t page_bits) {
  const uint64_t index = index_bytes == 8
                             ? static_cast<const uint64_t*>(indices)[position]
                             : static_cast<uint64_t>(int64_t{static_cast<const int32_t*>(indices)[position]});
  return static_cast<uint32_t>(min(index >> page_shift, (uint64_t{1} << page_bits) - 1));
}

}  // namespace narrowcast::store::cuda
