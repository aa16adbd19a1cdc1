// Local search, if no list schedule keeps all groups busy.
#pragma once

#include <cstdint>

#include "plan/schedule/best.h"
#include "plan/schedule/search.h"

namespace narrowcast::plan::schedule {

// If a group of the best plan is idle for long, and the groups of the nearest schedule are almost busy enough, changes
// at random which groups run the units of that schedule and which units come first, and takes what is better.
//
// Method: rounds of simulated annealing (Kirkpatrick, Gelatt and Vecchi, 1983), each followed by a descent; for large
// plans, of which few schedules can be made, a descent.
//
// round_steps: steps that a round of annealing schedules. Plans for which that is too few schedules are large.
inline constexpr uint64_t annealed_steps = 24'000'000;
void improve(const Nearest& nearest, Best* best, uint64_t round_steps = annealed_steps);

}  // namespace narrowcast::plan::schedule
