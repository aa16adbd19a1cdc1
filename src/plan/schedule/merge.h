// Assignments of groups to merged groups, and the merged plans.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// Simulated times of a group.
struct GroupTimes {
  bool can_merge = false;
  double busy_us = 0;
  std::vector<double> begin, end;  // of each step in the first micro-batch
};

// By rank and group.
using PlanTimes = std::vector<std::vector<GroupTimes>>;

PlanTimes times_of(const Plan& plan, const simulate::Prediction& prediction);

// By group of a rank, its merged group. Groups that cannot merge have one of their own.
using Assignment = std::vector<uint32_t>;

// Greedy interval colouring: groups, in the order of their first steps, get the first merged group that is never busy
// at the same time.
Assignment assign_apart(const std::vector<GroupTimes>& groups);

// Assigns the groups of a rank to at most `merged` groups if possible, separating groups that are busy together and
// balancing the loads.
Assignment assign_evenly(const std::vector<GroupTimes>& groups, uint32_t merged);

// Merges the groups of every rank. Ranks with empty assignments get no groups.
Plan merge(const Plan& plan, const PlanTimes& times, const std::vector<Assignment>& assignments);

}  // namespace narrowcast::plan::schedule
