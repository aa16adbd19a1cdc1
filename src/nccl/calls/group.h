// Groups: calls are kept until the outermost end, then a communicator's are taken or forwarded. Per thread, as NCCL's.
#pragma once

#include <span>

#include "nccl/abi/call.h"

namespace narrowcast::nccl {

// Each returns an ncclResult_t.

// A call, in a group or alone.
int submit(const Call& call);

int start_group();
int end_group();
// `simulate` is ncclGroupSimulateEnd's: nothing is launched, so all calls are given to it.
int end_group_by(int (*simulate)(void*), void* argument);

// After a call that makes communicators at `made`, in a group or alone: attaches them once NCCL has made them. Where one is
// NULL, the end of the group may write it.
void attach_when_made(std::span<Comm> made);

}  // namespace narrowcast::nccl
