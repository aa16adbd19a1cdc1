// Runs calls by advancing all their transfers in turn, in one thread. It never blocks on a single transfer: sends and
// receives progress concurrently, so the ranks cannot deadlock, whatever the order of their calls.
#pragma once

#include <vector>

#include "executor/call.h"

namespace narrowcast::executor::host {

// Runs calls that were launched together. On each communicator the collectives run in order, then the sends and
// receives run concurrently. Different communicators progress concurrently. The caller must have waited for its turn
// on each communicator.
ncast_status run(const std::vector<Call>& calls);

}  // namespace narrowcast::executor::host
