// Creates and destroys the engine's communicator behind one of NCCL's.
#pragma once

#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// attach() and agree_and_attach() are collective, like agree(). They have the same result on every rank: if one rank cannot
// attach, every rank forwards all calls.

// Requires that agree() has succeeded.
void attach(Communicator& comm);

void agree_and_attach(Communicator& comm);

// Destroys the engine's communicator once its calls have completed. comm has been removed from the table.
void detach(Communicator& comm);

}  // namespace narrowcast::nccl
