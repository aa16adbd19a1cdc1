// From calls to running ones: tickets and streams.
#pragma once

#include <vector>

#include "executor/call.h"

namespace narrowcast::executor::host {

// Backend::launch. Calls on a NULL stream have run when this returns.
ncast_status launch(const std::vector<Call>& calls);

}  // namespace narrowcast::executor::host
