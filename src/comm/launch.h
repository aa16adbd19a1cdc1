// Launches checked calls: groups, and dispatch to the backends.
#pragma once

#include "executor/call.h"

namespace narrowcast::comm {

// Adds a call to the open group of the thread, or launches it. On a NULL stream it has run when this returns.
ncast_status submit(const executor::Call& call);

// Reports a call that failed its checks: the open group of the thread, if any, fails.
ncast_status reject(ncast_status status);

ncast_status start_group();
ncast_status end_group();

// True while this thread's open group holds a call on the communicator.
bool is_in_open_group(const ncast_comm* comm);

}  // namespace narrowcast::comm
