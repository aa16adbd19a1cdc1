// List scheduling: simulates the steps, and decides at every event which of them begin.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/step_graph.h"
#include "plan/simulate/program.h"

namespace narrowcast::plan::schedule {

// The steps of a plan, and what they take of a machine.
struct ListedSteps {
  const std::vector<Node>& nodes;
  const std::vector<std::vector<uint32_t>>& first;  // by rank and group, the node of the first step; the others follow
  const simulate::Programs& programs;
  double launch_us;   // before any step
  uint32_t replicas;  // that the plan consists of
};

// groups: the number of merged groups, by rank. interval_us: between the first steps of staggered replicas.
StepGraph::Schedule schedule_list(const ListedSteps& steps, const std::vector<uint32_t>& groups,
                                  const StepGraph::Rules& rules, double interval_us);

}  // namespace narrowcast::plan::schedule
