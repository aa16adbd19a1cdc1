#include "plan/schedule/schedule.h"

#include <algorithm>
#include <optional>

#include "plan/lower/lower.h"
#include "plan/schedule/counts.h"
#include "plan/schedule/search.h"
#include "plan/schedule/split.h"
#include "status/error.h"

namespace narrowcast::plan::schedule {
namespace {

// Of plans whose steps are divided or replicated. Searches with more take long.
constexpr uint64_t max_steps = 65'536;
// With so few steps, of the ranks that are scheduled, the search goes on for fewer groups.
constexpr uint64_t few_steps = 4096;

// The same plan in as many groups as possible, each step of one chunk. Empty if it cannot be split.
std::optional<Plan> split_steps(const Plan& lowered, const simulate::Machine& machine, const Options& options) {
  simulate::Options simulation = options.simulation;
  simulation.records_timeline = true;
  simulation.max_batches = 1;
  simulate::Prediction prediction;
  if (!can_split(lowered) || simulate::simulate(lowered, machine, simulation, &prediction)) return std::nullopt;
  return split(lowered, prediction, true);
}

}  // namespace

ncast_status schedule(const Plan& lowered, const simulate::Machine& machine, const Options& options, Result* result) {
  uint64_t simulated_steps = 0;
  if (ncast_status status = shrink(lowered, machine, options, result, &simulated_steps)) return status;
  const std::optional<Plan> parts = is_open(*result) ? split_steps(lowered, machine, options) : std::nullopt;
  if (!parts) return NCAST_OK;
  const double limit_us = std::max(result->before.microseconds, result->after.microseconds) * (1 + tolerance);
  Options limited = options;
  if (options.max_groups == 0) limited.max_groups = most_groups(lowered);
  // Steps of one chunk have been tried.
  const uint32_t first = steps_of(*parts) == steps_of(lowered) ? 2 : 1;
  CountSearch counts(limit_us, limited.max_groups);
  const uint32_t most =
      options.simulation.max_batches == 1 ? options.max_instances : std::min(options.max_instances, few_instances);
  for (uint32_t instances = first; instances <= most; instances += instances < few_instances ? 1 : instances) {
    if (!is_idle(result->after) && (instances > few_instances || simulated_steps > few_steps)) break;
    Plan replicated = *parts;
    replicated.instances = instances;
    // What has been found remains valid if the steps become too many.
    if (lower::lower(replicated, &replicated) != NCAST_OK || steps_of(replicated) > max_steps) break;
    if (improve(replicated, instances, machine, limited, limit_us, &counts, result, &simulated_steps) != NCAST_OK)
      break;
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::schedule
