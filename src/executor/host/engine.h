// Turns the transfers of calls until all are done, in one thread and without blocking on any one of them: sends and
// receives advance side by side, so that no order of calls between the ranks can lock them.
#pragma once

#include <vector>

#include "executor/call.h"
#include "executor/host/stage.h"

namespace narrowcast::executor::host {

// Runs calls that were launched together: per communicator first its sends and receives, all at once, then its
// collectives in order; different communicators side by side. It is the turn of these calls on each of them.
ncast_status run(const std::vector<Call>& calls);

}  // namespace narrowcast::executor::host
