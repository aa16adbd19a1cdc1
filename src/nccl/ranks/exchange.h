// Ranks of a communicator exchange a few bytes over it, by the real NCCL's all-gather.
#pragma once

#include <cstddef>

#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

constexpr size_t most_exchanged_bytes = 512;

// The function that ncast_comm_create_by_exchange takes; context is a Communicator. Called on every rank. Waits for the
// other ranks, until the communicator is aborted or in error. No group is open on this thread, none of the communicator's
// calls is in an open group, and its device is current. bytes: at most most_exchanged_bytes.
int exchange_bytes(void* context, const void* mine, size_t bytes, void* all);

}  // namespace narrowcast::nccl
