// Measures the cost model of a communicator that has just been attached. With NVLink the built-in model applies; over
// PCIe and through host memory, times depend on the machine.
#pragma once

#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Collective: every rank calls this after creating `created`, the communicator of the engine. Rank 0 decides: all ranks
// use a model that it finds in the user's cache, or measure one together, which takes about two seconds at
// most, or keep the built-in one. Returns false if the communicators cannot be used any more.
// The requirements of exchange_bytes() apply.
bool calibrate(Communicator& comm, ncast_comm* created);

}  // namespace narrowcast::nccl
