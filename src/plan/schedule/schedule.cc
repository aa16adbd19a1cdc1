#include "plan/schedule/schedule.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "plan/lower/lower.h"
#include "plan/schedule/best.h"
#include "plan/schedule/counts.h"
#include "plan/schedule/divided.h"
#include "plan/schedule/improve.h"
#include "plan/schedule/search.h"
#include "plan/schedule/split.h"
#include "plan/schedule/whole_groups.h"

namespace narrowcast::plan::schedule {
namespace {

// Of plans whose steps are divided or replicated. To lower, simulate and verify so many takes seconds, each time.
constexpr uint64_t max_steps = 65'536;
// With so few steps, of the ranks that are scheduled, a trial takes about a second, and the search goes on for fewer
// groups even if none is idle for long.
constexpr uint64_t few_steps = 4096;

simulate::Options with_timeline(simulate::Options simulation) {
  simulation.records_timeline = true;
  return simulation;
}

// Searches list schedules of a plan that consists of so many replicas of the given one. Returns how many steps are
// scheduled; 0: the plan cannot be divided or simulated. few: gets the search if it is one of a few replicas.
uint64_t search_lists(const Plan& plan, uint32_t replicas, const simulate::Prediction& prediction, CountSearch* counts,
                      Nearest* nearest, std::vector<ListSearch>* few, Best* best) {
  std::optional<Plan> parts = split(plan, prediction, false);
  if (!parts) return 0;
  const auto divided =
      std::make_shared<const Divided>(std::move(*parts), best->machine(), best->simulation(), replicas);
  ListSearch search(divided, prediction, replicas, counts, nearest, best);
  if (replicas == 1 && best->is_one_batch()) best->set_least_groups(divided->least_groups(best->side().microseconds));
  if (replicas <= few_instances) search.bisect();
  search.vary();
  if (replicas <= few_instances) few->push_back(std::move(search));
  return steps_of(divided->simulated());
}

// The plan with a step for each chunk of its steps, in as many groups as possible.
std::optional<Plan> divided_by_chunk(const Plan& plan, const Best& best) {
  simulate::Options simulation = with_timeline(best.simulation());
  simulation.max_batches = 1;
  simulate::Prediction prediction;
  if (!can_split(plan) || simulate::simulate(plan, best.machine(), simulation, &prediction)) return std::nullopt;
  return split(plan, prediction, true);
}

}  // namespace

ncast_status schedule(const Plan& lowered, const simulate::Machine& machine, const Options& given, Result* result) {
  Options options = given;
  if (options.simulation.ctas_per_group == 0) options.simulation.ctas_per_group = 1;
  const simulate::Options simulation = with_timeline(options.simulation);
  simulate::Prediction prediction;
  if (ncast_status status = simulate::simulate(lowered, machine, simulation, &prediction)) return status;
  Best best(lowered, prediction, machine, options, result);
  const PlanTimes times = times_of(lowered, prediction);
  if (options.max_groups != 0) {
    if (ncast_status status = limit_groups(lowered, times, options.max_groups, &best)) return status;
  }
  CountSearch counts(best.limit_us(), best.max_groups());
  Nearest nearest;
  std::vector<ListSearch> few;
  uint64_t scheduled_steps = search_lists(lowered, 1, prediction, &counts, &nearest, &few, &best);
  if (scheduled_steps == 0) {
    merge_whole_groups(lowered, times, &best);
    return NCAST_OK;
  }
  const std::optional<Plan> parts = divided_by_chunk(lowered, best);
  if (!parts) return NCAST_OK;
  const uint32_t first = steps_of(*parts) == steps_of(lowered) ? 2 : 1;  // steps of one chunk have been searched
  for (uint32_t instances = first; instances <= options.max_instances;
       instances += instances < few_instances ? 1 : instances) {
    if (!best.is_open()) break;
    if (!is_idle(best.side()) && (instances > few_instances || scheduled_steps > few_steps)) break;
    if (!best.is_one_batch() && instances > few_instances) break;
    Plan replicated = *parts;
    replicated.instances = instances;
    if (lower::lower(replicated, &replicated) != NCAST_OK || steps_of(replicated) > max_steps) break;
    if (!best.has_few_rings(replicated)) break;
    if (simulate::simulate(replicated, machine, simulation, &prediction) != NCAST_OK) break;
    scheduled_steps = search_lists(replicated, instances, prediction, &counts, &nearest, &few, &best);
  }
  if (const std::optional<Trial>& closest = few.front().closest(); closest && is_idle(best.side()))
    few.front().climb(*closest);
  if (is_idle(best.side())) improve(nearest, &best);
  if (is_idle(best.side())) few.back().even();
  return NCAST_OK;
}

}  // namespace narrowcast::plan::schedule
