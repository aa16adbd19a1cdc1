// Launches calls: takes their tickets and enqueues them on their streams.
#pragma once

#include <vector>

#include "executor/call.h"

namespace narrowcast::executor::host {

// Implements Backend::launch. Calls on the NULL stream have run when this returns.
ncast_status launch(const std::vector<Call>& calls);

}  // namespace narrowcast::executor::host
