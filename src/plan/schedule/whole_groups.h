// Merging whole groups, which also plans permit whose steps cannot be divided among other groups.
#pragma once

#include "plan/ir.h"
#include "plan/schedule/candidates.h"
#include "plan/schedule/merge.h"

namespace narrowcast::plan::schedule {

// Begins with the fastest plan in which no rank has more than max_groups groups.
// Errors: UNSUPPORTED if there is none.
ncast_status limit_groups(const Plan& plan, const PlanTimes& times, uint32_t max_groups, Candidates* candidates);

// Merges groups that are never busy together, and then looks for the least number of groups for all ranks.
void merge_whole_groups(const Plan& plan, const PlanTimes& times, Candidates* candidates);

}  // namespace narrowcast::plan::schedule
