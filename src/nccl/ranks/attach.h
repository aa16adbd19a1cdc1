// Creates and destroys the engine's communicator behind one of NCCL's.
#pragma once

#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// All functions except detach() are collective, as agree() is, and have the same result on every rank: if one rank
// cannot attach, every rank forwards all calls.

// Requires that agree() has succeeded.
void attach(Communicator& comm);

void agree_and_attach(Communicator& comm);

// Destroys the engine's communicator after its calls have completed. Requires that comm has been removed from the
// table.
void detach(Communicator& comm);

// Before ncclCommSuspend: destroys the engine's communicator to free its memory. It is kept if a rank has captured
// calls into a CUDA graph, which needs this memory when it is replayed.
void suspend(Communicator& comm);
// After ncclCommResume: creates the engine's communicator again.
void resume(Communicator& comm);

}  // namespace narrowcast::nccl
