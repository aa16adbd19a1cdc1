// The ranks of a communicator exchange a few bytes over it, with the real NCCL's all-gather.
#pragma once

#include <cstddef>

#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

constexpr size_t max_exchange_bytes = 512;

// The function that ncast_comm_create_by_exchange takes; context is a Communicator. Collective. Waits for the other
// ranks until the communicator is aborted or in error. Requires: no group is open on this thread, no call of the
// communicator is in an open group, its device is current, bytes <= max_exchange_bytes.
int exchange_bytes(void* context, const void* mine, size_t bytes, void* all);

}  // namespace narrowcast::nccl
