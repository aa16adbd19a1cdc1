// Destroys communicators of the engine at a time when that cannot deadlock.
#pragma once

#include <cstdint>
#include <vector>

#include "nccl/libraries/engine.h"

namespace narrowcast::nccl {

struct LocalRank {
  uint64_t id;  // of the communicator, the same on all ranks
  int local_ranks;
  int device;
  ncast_comm* comm;
  std::vector<ncast_loaded_plan*> plans = {};  // loaded on it
};

// Called once for each rank of this process. The last call destroys the engine's communicators of all these ranks, each
// in its own thread: destruction waits for the other ranks, and a program may destroy them one after another in one
// thread. Requires that their calls are complete.
void destroy_with_local_ranks(const LocalRank& rank);

// For aborted communicators: destruction would wait for all other work on the GPU, so it is deferred until
// run_deferred().
void defer_destroy(ncast_comm* comm, std::vector<ncast_loaded_plan*> plans);
// The same for GPU memory.
void defer_free(int device, void* memory);
void run_deferred();

}  // namespace narrowcast::nccl
