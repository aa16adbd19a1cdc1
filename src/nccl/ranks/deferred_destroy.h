// Destroys communicators of the engine at a time when that cannot deadlock.
#pragma once

#include <cstdint>

#include "nccl/libraries/engine.h"

namespace narrowcast::nccl {

struct LocalRank {
  uint64_t id;  // of the communicator, the same on all ranks
  int local_ranks;
  int device;
  ncast_comm* comm;
};

// Destroys the engine's communicators of all ranks of this process, in a thread each, when the last of them is passed
// here. Destruction waits for the other ranks, and one thread may drive all of them and give them up one after the
// other. Their calls are complete.
void destroy_with_local_ranks(const LocalRank& rank);

// For aborted communicators: destruction would wait for everything else on the GPU, so it is deferred until
// run_deferred().
void defer_destroy(ncast_comm* comm);
// The same for GPU memory.
void defer_free(int device, void* memory);
void run_deferred();

}  // namespace narrowcast::nccl
