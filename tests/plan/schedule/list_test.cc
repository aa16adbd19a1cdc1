#include "plan/schedule/list.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/builders/builders.h"
#include "plan/lower/lower.h"
#include "plan/schedule/divided.h"
#include "plan/schedule/split.h"
#include "schedules.h"

namespace narrowcast::plan::schedule {
namespace {

using Priority = StepGraph::Priority;

Plan tree(uint32_t instances) {
  Plan plan;
  REQUIRE(builders::build("tree", {.operation = Operation::all_reduce, .ranks = 4}, &plan) == NCAST_OK);
  plan.instances = instances;
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  return plan;
}

TEST_CASE("list schedules take as long as the simulation of their plans") {
  constexpr uint32_t replicas = 3;
  const simulate::Machine machine = test_machine();
  simulate::Options options{.piece_bytes = 100'000'000, .max_batches = 1, .ctas_per_group = 1};
  options.records_timeline = true;
  const Plan plan = tree(replicas);
  simulate::Prediction prediction;
  REQUIRE(simulate::simulate(plan, machine, options, &prediction) == NCAST_OK);
  std::optional<Plan> parts = split(plan, prediction, true);
  REQUIRE(parts);
  options.records_timeline = false;
  const Divided divided(std::move(*parts), machine, options, replicas);
  for (const Priority priority :
       {Priority::longest_path, Priority::shortest_path, Priority::earliest_chunk, Priority::staggered})
    for (const uint32_t each : {1, 2, 4}) {
      const std::vector<uint32_t> groups(plan.ranks.size(), each);
      const StepGraph::Schedule schedule = divided.graph().schedule(groups, {priority, false, 0.3});
      const Trial trial = divided.trial_of(groups, schedule);
      REQUIRE(simulate::simulate(divided.merged(schedule), machine, options, &prediction) == NCAST_OK);
      double most_idle = 0;
      for (const simulate::Activity& activity : prediction.groups)
        most_idle = std::max(most_idle, 1 - activity.busy_us / prediction.microseconds);
      CHECK(trial.microseconds == doctest::Approx(prediction.microseconds).epsilon(1e-4));
      CHECK(trial.most_idle == doctest::Approx(most_idle).epsilon(1e-3));
      CHECK(trial.used == prediction.groups.size());
    }
}

}  // namespace
}  // namespace narrowcast::plan::schedule
