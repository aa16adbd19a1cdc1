#include "plan/schedule/divided.h"

#include <algorithm>
#include <numeric>

#include "plan/schedule/merge.h"

namespace narrowcast::plan::schedule {

Plan Divided::merged(const StepGraph::Schedule& schedule) const {
  PlanTimes order(plan_.ranks.size());
  std::vector<Assignment> assignments(plan_.ranks.size());
  for (size_t rank = 0; rank < plan_.ranks.size(); ++rank)
    for (uint32_t group : symmetry_.groups[rank]) {
      const uint32_t simulated = symmetry_.orbits.ranks[rank];
      order[rank].push_back(schedule.order[simulated][group]);
      assignments[rank].push_back(schedule.assignments[simulated][group]);
    }
  return merge(plan_, order, assignments);
}

Trial Divided::trial_of(const std::vector<uint32_t>& groups, const StepGraph::Schedule& schedule) const {
  Trial trial{groups, {}, schedule.microseconds, 0};
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    const std::vector<double>& own_us = schedule.busy_us[symmetry_.orbits.ranks[rank]];
    trial.busy_us.push_back(std::accumulate(own_us.begin(), own_us.end(), 0.0));
    for (double us : own_us)
      if (us > 0) {
        ++trial.used;
        trial.most_idle = std::max(trial.most_idle, 1 - us / schedule.microseconds);
      }
  }
  return trial;
}

uint32_t Divided::least_groups(double microseconds) const {
  uint32_t groups = 0;
  for (const uint32_t simulated : symmetry_.orbits.ranks) groups += graph_.least_groups(simulated, microseconds);
  return groups;
}

StepGraph Divided::graph_of(const simulate::Machine& machine, simulate::Options simulation, uint32_t replicas) {
  for (size_t rank = 0; rank < plan_.ranks.size(); ++rank)
    if (!symmetry_.orbits.is_simulated(rank)) simulated_.ranks[rank].groups.clear();
  simulation.orbits = &symmetry_.orbits;
  return {simulated_, machine, simulation, replicas};
}

}  // namespace narrowcast::plan::schedule
