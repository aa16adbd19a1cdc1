// How the ranks of a communicator come to one mind, and then to an engine.
#pragma once

#include "nccl/communicator.h"

namespace narrowcast::nccl {

// Both are called on every rank before the same call of the communicator, and wait for all of them. They return alike on
// every rank: where a rank cannot, the communicator forwards everything. Conditions as for exchange_bytes().

// The ranks compare what they can and want, once.
void agree(Communicator& comm);

// After they agreed: makes the engine's communicator.
void attach(Communicator& comm);

// Both, one after the other.
void agree_and_attach(Communicator& comm);

// Destroys the engine's communicator, when its calls are done; comm is out of the table.
void detach(Communicator& comm);

}  // namespace narrowcast::nccl
