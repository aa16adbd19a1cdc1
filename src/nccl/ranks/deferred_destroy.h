// Destroys the engine's communicators. That waits for the other ranks, so those of one process go together, by a thread
// each, when the last of them is given up: one thread may drive them all, and gives up one after the other.
#pragma once

#include <cstdint>

#include "nccl/libraries/engine.h"

namespace narrowcast::nccl {

struct Retired {
  uint64_t id;  // of the communicator, on all its ranks
  int ranks_here;
  int device;
  ncast_comm* comm;
};

// Its calls are done.
void retire(const Retired& retired);

// Of an aborted communicator: destroying it would wait for whatever else hangs on the GPU, so that is put off until
// empty_graveyard().
void bury(ncast_comm* comm);
// The same of memory.
void bury_memory(int device, void* memory);
void empty_graveyard();

}  // namespace narrowcast::nccl
