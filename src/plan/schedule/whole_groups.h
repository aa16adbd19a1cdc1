// Merges whole groups, for plans whose steps cannot be divided.
#pragma once

#include "plan/ir.h"
#include "plan/schedule/candidates.h"
#include "plan/schedule/merge.h"

namespace narrowcast::plan::schedule {

// Begins with the fastest plan in which no rank has more than max_groups groups. Errors: UNSUPPORTED if there is none.
ncast_status limit_groups(const Plan& plan, const PlanTimes& times, uint32_t max_groups, Candidates* candidates);

// Merges groups that are never busy at the same time, then searches for the smallest number of groups of all ranks.
void merge_whole_groups(const Plan& plan, const PlanTimes& times, Candidates* candidates);

}  // namespace narrowcast::plan::schedule
