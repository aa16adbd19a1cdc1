// List scheduling: simulates the steps, and decides at every event which of them begin.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/step_graph.h"
#include "plan/simulate/program.h"

namespace narrowcast::plan::schedule {

// first: by rank and group, the node of the first step; those of the others follow. groups: the number of merged
// groups, by rank. interval_us: between the first steps of staggered replicas.
StepGraph::Schedule schedule_list(const std::vector<Node>& nodes, const std::vector<std::vector<uint32_t>>& first,
                                  const simulate::Programs& programs, const std::vector<uint32_t>& groups,
                                  const StepGraph::Rules& rules, uint32_t replicas, double launch_us,
                                  double interval_us);

}  // namespace narrowcast::plan::schedule
