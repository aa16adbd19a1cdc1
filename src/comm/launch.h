// Launches calls whose arguments have been checked: collects groups and dispatches to the backends.
#pragma once

#include "executor/call.h"

namespace narrowcast::comm {

// Adds a call to the open group of this thread, or launches it if there is none. On the host backend a call on the NULL
// stream has run when this returns.
ncast_status submit(const executor::Call& call);

// Records that a call failed its checks, so that the open group of this thread, if any, fails. Returns `status`.
ncast_status reject(ncast_status status);

ncast_status start_group();
// is_complete: all calls of the group have been made. Otherwise those of ranks that one thread drives are not launched.
ncast_status end_group(const char* function, bool is_complete);

bool is_group_open();

// Whether this thread's open group contains a call on the communicator.
bool is_in_open_group(const ncast_comm* comm);
// Whether this thread's open group contains a call that runs the plan.
bool is_in_open_group(const executor::LoadedPlan* plan);

}  // namespace narrowcast::comm
