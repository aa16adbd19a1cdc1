// Advances the transfers of calls until all are done, in one thread and without blocking on any of them: sends and
// receives progress concurrently, so no order of calls between the ranks can deadlock.
#pragma once

#include <vector>

#include "executor/call.h"
#include "executor/host/stage.h"

namespace narrowcast::executor::host {

// Runs calls that were launched together: for each communicator its collectives in order, then its sends and receives
// concurrently. Different communicators progress concurrently. The calls have their turn on each communicator.
ncast_status run(const std::vector<Call>& calls);

}  // namespace narrowcast::executor::host
