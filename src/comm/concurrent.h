// Runs functions that may wait for each other, or for the same functions of other ranks.
#pragma once

#include <functional>

#include "narrowcast/types.h"

namespace narrowcast::comm {

// Runs action(0) to action(count - 1), which begin in this order, in up to most_threads threads, but a single one in
// this thread. When this thread is interrupted, so are they. Returns the error of the first one that failed, preferring
// errors that are not a consequence of another rank's failure. If a thread cannot be started, all are interrupted,
// because they would wait for those without a thread. Error: SYSTEM_ERROR.
ncast_status run_concurrently(int count, int most_threads, const std::function<ncast_status(int)>& action);

}  // namespace narrowcast::comm
