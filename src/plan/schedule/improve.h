// Local search, if no list schedule keeps all groups busy.
#pragma once

#include "plan/schedule/best.h"
#include "plan/schedule/search.h"

namespace narrowcast::plan::schedule {

// If a group of the best plan is idle for long, and the groups of the nearest schedule are almost busy enough, changes
// at random which groups run the units of that schedule and which units come first, and takes what is better.
//
// Method: rounds of simulated annealing (Kirkpatrick, Gelatt and Vecchi, 1983), each followed by a descent; for large
// plans, of which few schedules can be made, a descent.
void improve(const Nearest& nearest, Best* best);

}  // namespace narrowcast::plan::schedule
