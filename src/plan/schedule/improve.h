// Small changes to the schedule that comes nearest to keeping all groups busy, if the search has found none that does.
#pragma once

#include "plan/schedule/best.h"
#include "plan/schedule/search.h"

namespace narrowcast::plan::schedule {

// If a group of the best plan is idle for long, and the groups of the nearest schedule are almost busy enough, lets
// pairs of units exchange their groups, one pair after another. An exchange remains if groups do not become more idle.
void improve(const Nearest& nearest, Best* best);

}  // namespace narrowcast::plan::schedule
