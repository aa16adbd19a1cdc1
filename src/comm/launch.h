// From checked calls to running ones: groups, and the calls of each backend to it.
#pragma once

#include "executor/call.h"

namespace narrowcast::comm {

// A call of the interface: kept in the thread's open group, or launched. On a NULL stream it has run when this returns.
ncast_status submit(const executor::Call& call);

// A call that failed its checks: the thread's open group, if any, fails with it.
ncast_status reject(ncast_status status);

ncast_status start_group();
ncast_status end_group();

// True while this thread's open group holds a call on the communicator.
bool is_in_open_group(const ncast_comm* comm);

}  // namespace narrowcast::comm
