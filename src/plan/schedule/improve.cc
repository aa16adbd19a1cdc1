#include "plan/schedule/improve.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace narrowcast::plan::schedule {

void improve(const Nearest& nearest, Best* best) {
  if (!nearest.graph || !is_idle(best->side()) || nearest.trial.most_idle > almost_busy) return;
  const StepGraph& graph = *nearest.graph;
  const std::vector<uint32_t>& groups = nearest.trial.groups;
  StepGraph::Rules rules = nearest.rules;
  rules.assignments = graph.schedule(groups, rules).assignments;
  std::vector<Assignment*> ranks;  // that are scheduled and have several groups
  for (Assignment& units : rules.assignments)
    if (std::ranges::adjacent_find(units, std::not_equal_to{}) != units.end()) ranks.push_back(&units);
  if (ranks.empty()) return;
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same plan gets the same schedule
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  double least_idle = nearest.trial.most_idle;
  for (uint64_t steps = 0; steps < most_scheduled_steps && is_idle(best->side());) {
    Assignment& units = *ranks[below(ranks.size())];
    const size_t one = below(units.size()), other = below(units.size());
    if (units[one] == units[other]) continue;
    std::swap(units[one], units[other]);
    const StepGraph::Schedule schedule = graph.schedule(groups, rules);
    steps += schedule.durations.size();
    const Trial trial = nearest.divided->trial_of(groups, schedule);
    if (trial.microseconds > best->limit_us() || trial.most_idle > least_idle) {
      std::swap(units[one], units[other]);
      continue;
    }
    least_idle = trial.most_idle;
    if (is_promising(trial, *best)) consider(*nearest.divided, schedule, best);
  }
}

}  // namespace narrowcast::plan::schedule
