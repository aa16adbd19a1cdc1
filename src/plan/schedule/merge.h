// Assignments of groups to merged groups, and the plans that result.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// What the simulation says about a group.
struct GroupTimes {
  bool can_merge = false;
  double busy_us = 0;
  std::vector<double> begin, end;  // of each step in the first micro-batch
};

// By rank and group.
using PlanTimes = std::vector<std::vector<GroupTimes>>;

PlanTimes times_of(const Plan& plan, const simulate::Prediction& prediction);

// For a rank: the number of the merged group of each group. Groups that cannot merge have one of their own.
using Assignment = std::vector<uint32_t>;

// Assigns groups of a rank to the same merged group only if they are never busy at the same time. Each group, in the
// order of their first steps, gets the first merged group that allows it: greedy interval colouring.
Assignment assign_apart(const std::vector<GroupTimes>& groups);

// Assigns the groups of a rank to at most `merged` groups, if so few are possible, so that those that are busy together
// are apart and the loads are even.
Assignment assign_evenly(const std::vector<GroupTimes>& groups, uint32_t merged);

// The plan with the groups of every rank merged. Ranks with empty assignments get no groups.
Plan merge(const Plan& plan, const PlanTimes& times, const std::vector<Assignment>& assignments);

}  // namespace narrowcast::plan::schedule
