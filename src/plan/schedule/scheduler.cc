#include "plan/schedule/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "plan/lower/lower.h"
#include "plan/schedule/candidates.h"
#include "plan/schedule/list.h"
#include "plan/schedule/merge.h"
#include "plan/schedule/split.h"
#include "plan/schedule/whole_groups.h"

namespace narrowcast::plan::schedule {
namespace {

// Larger plans are not replicated, which would take seconds.
constexpr uint64_t most_replicated_steps = 16'384;

// Schedules with a given number of groups for each rank, and adds the result if it is not too slow.
bool add_list(const Plan& parts, const StepGraph& graph, const std::vector<uint32_t>& groups, Candidates* candidates) {
  for (const bool divides_evenly : {false, true}) {
    const StepGraph::Schedule schedule = graph.schedule(groups, divides_evenly);
    if (candidates->add(merge(parts, schedule.order, schedule.assignments))) return true;
  }
  return false;
}

// Tries increasing numbers of groups until a schedule is not too slow. Each rank has as few groups as its steps need if
// groups work for a certain share of the time.
void add_lists(const Plan& parts, Candidates* candidates) {
  const StepGraph graph(parts, candidates->machine(), candidates->simulation());
  const std::vector<double> work_us = graph.work_us();
  std::vector<uint32_t> groups(work_us.size()), last;
  constexpr int shares = 25;  // from 1 to 0.1
  for (int i = 0; i < shares; ++i) {
    const double share = std::pow(1.1, -i);
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      const double needed = std::ceil(work_us[rank] / (candidates->limit_us() * share));
      groups[rank] = static_cast<uint32_t>(std::clamp<double>(needed, 1, candidates->max_groups()));
    }
    if (std::accumulate(groups.begin(), groups.end(), 0u) >= candidates->fewest_groups()) return;
    if (groups != last && add_list(parts, graph, groups, candidates)) return;
    last = groups;
  }
}

// Adds schedules of a plan's parts. Returns false if it cannot be divided.
bool add_parts(const Plan& plan, const simulate::Prediction& prediction, Candidates* candidates) {
  const std::optional<Plan> parts = split(plan, prediction);
  if (parts) add_lists(*parts, candidates);
  return parts.has_value();
}

}  // namespace

ncast_status schedule(const Plan& lowered, const simulate::Machine& machine, const Options& given, Result* result) {
  Options options = given;
  if (options.simulation.ctas_per_group == 0) options.simulation.ctas_per_group = 1;
  options.simulation.records_timeline = true;
  simulate::Prediction prediction;
  if (ncast_status status = simulate::simulate(lowered, machine, options.simulation, &prediction)) return status;
  Candidates candidates(lowered, prediction, machine, options);
  const PlanTimes times = times_of(lowered, prediction);
  if (options.max_groups != 0)
    if (ncast_status status = limit_groups(lowered, times, options.max_groups, &candidates)) return status;
  if (!add_parts(lowered, prediction, &candidates)) merge_whole_groups(lowered, times, &candidates);
  for (uint32_t instances = 2; instances <= options.max_instances; instances *= 2) {
    Plan replicated = lowered;
    replicated.instances = instances;
    if (steps_of(lowered) * instances > most_replicated_steps || lower::lower(replicated, &replicated) != NCAST_OK ||
        !candidates.has_few_rings(replicated) ||
        simulate::simulate(replicated, machine, options.simulation, &prediction) != NCAST_OK ||
        !add_parts(replicated, prediction, &candidates))
      break;
  }
  *result = std::move(candidates).best();
  return NCAST_OK;
}

}  // namespace narrowcast::plan::schedule
