// The last attempt for a plan of which the search has found no schedule that keeps all groups busy: small changes.
#pragma once

#include "plan/schedule/best.h"
#include "plan/schedule/search.h"

namespace narrowcast::plan::schedule {

// If a group of the best plan is idle for long, and the groups of the nearest schedule are almost busy enough, lets
// pairs of units exchange their groups, one pair after another. An exchange remains if groups do not become more idle.
void improve(const Nearest& nearest, Best* best);

}  // namespace narrowcast::plan::schedule
