// Groups. Calls are held until the outermost ncclGroupEnd; then those of each communicator run on the engine or go to
// NCCL. State is per thread, as in NCCL.
#pragma once

#include <memory>
#include <span>

#include "nccl/abi/call.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// All functions that return int return an ncclResult_t.

// A call, in a group or alone.
int submit(const Call& call);

int start_group();
int end_group();
// For ncclGroupSimulateEnd, called as `simulate(argument)`: nothing is launched, so all calls are forwarded.
int end_group_by(int (*simulate)(void*), void* argument);

// For ncclRedOpDestroy. In a group it takes effect at its end, because calls are held until then.
int destroy_reduction(int redop, Comm comm);

// After a call that creates communicators at `created`, in a group or alone: remembers their configuration and attaches
// them if asked to. In a group both happen at its end, which may also be when NCCL writes a handle that is still NULL.
void communicators_created(std::span<Comm> created, const CommunicatorConfig& config, bool attach);

// Before ncclCommSuspend and after ncclCommResume. In a group they take effect at its end.
void suspend_in_group(const std::shared_ptr<Communicator>& comm);
void resume_in_group(const std::shared_ptr<Communicator>& comm);

}  // namespace narrowcast::nccl
