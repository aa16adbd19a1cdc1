// How a call tells the writer of its table when it reads (CallWords).
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

// The last CTA tells the writer that the call has ended.
__device__ inline void end_call(const CallWords& reader) {
  if (reader.finished == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(reader.ended_ctas, 1u) + 1 != gridDim.x) return;
  *reader.ended_ctas = 0;
  __threadfence();
  device::store_release(reader.finished, static_cast<uint64_t>(*reader.calls));
}

}  // namespace narrowcast::store::cuda
