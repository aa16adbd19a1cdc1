#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/builders/builders.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/schedule/divided.h"
#include "plan/schedule/split.h"
#include "plan/schedule/step_graph.h"
#include "schedules.h"

namespace narrowcast::plan::schedule {
namespace {

using Priority = StepGraph::Priority;

Plan plan_of(const char* name, uint32_t instances) {
  Plan plan;
  REQUIRE(builders::build(name, {.operation = Operation::all_reduce, .ranks = 4}, &plan) == NCAST_OK);
  plan.instances = instances;
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  return plan;
}

const simulate::Options simulated{.piece_bytes = 100'000'000, .max_batches = 1, .ctas_per_group = 1};

Divided parts_of(const Plan& plan, const simulate::Machine& machine, uint32_t replicas) {
  simulate::Options options = simulated;
  options.records_timeline = true;
  simulate::Prediction prediction;
  REQUIRE(simulate::simulate(plan, machine, options, &prediction) == NCAST_OK);
  std::optional<Plan> parts = split(plan, prediction, true);
  REQUIRE(parts);
  return {std::move(*parts), machine, simulated, replicas};
}

TEST_CASE("list schedules take exactly as long as the simulation of their plans") {
  constexpr uint32_t replicas = 3;
  const simulate::Machine machine = test_machine();
  for (const char* name : {"tree", "ring", "all_pairs"}) {
    const Plan plan = plan_of(name, replicas);
    const Divided parts = parts_of(plan, machine, replicas);
    if (parts.is_symmetric()) continue;  // ranks are exactly alike only in the simulation of one of them
    for (const Priority priority :
         {Priority::longest_path, Priority::shortest_path, Priority::earliest_chunk, Priority::staggered})
      for (const double full_link : {0, 1})
        for (const uint32_t each : {1, 2, 4}) {
          const std::vector<uint32_t> groups(plan.ranks.size(), each);
          const StepGraph::Schedule schedule = parts.graph().schedule(groups, {priority, false, 0.3, full_link});
          const Trial trial = parts.trial_of(groups, schedule);
          simulate::Prediction prediction;
          REQUIRE(simulate::simulate(parts.merged(schedule), machine, simulated, &prediction) == NCAST_OK);
          double most_idle = 0;
          for (const simulate::Activity& activity : prediction.groups)
            most_idle = std::max(most_idle, 1 - activity.busy_us / prediction.microseconds);
          CHECK(trial.microseconds == doctest::Approx(prediction.microseconds).epsilon(1e-9));
          CHECK(trial.most_idle == doctest::Approx(most_idle).epsilon(1e-6));
          CHECK(trial.used == prediction.groups.size());
        }
  }
}

// A broadcast whose root sends two chunks on rings of their own, and copies both to its output.
Plan broadcast_of_two_chunks() {
  Plan plan;
  REQUIRE(json::read(R"({"narrowcast_plan": 1, "operation": "broadcast", "in_place": "no", "chunks": 2,
    "channels": [{"kind": "ring", "from": 0, "to": 1, "depth": 1}, {"kind": "ring", "from": 0, "to": 1, "depth": 1}],
    "ranks": [
    {"groups": [
     {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"channel": 0}]}]},
     {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 1}], "to": [{"channel": 1}]}]},
     {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"buffer": "output", "chunk": 0}]}]},
     {"steps": [{"step": "copy", "from": [{"buffer": "input", "chunk": 1}], "to": [{"buffer": "output", "chunk": 1}]}]}]},
    {"groups": [
     {"steps": [{"step": "copy", "from": [{"channel": 0}], "to": [{"buffer": "output", "chunk": 0}]}]},
     {"steps": [{"step": "copy", "from": [{"channel": 1}], "to": [{"buffer": "output", "chunk": 1}]}]}]}]})",
                     &plan) == NCAST_OK);
  return plan;
}

TEST_CASE("a step that would share a full link lets others begin first") {
  const simulate::Machine machine = test_machine();
  const Divided parts = parts_of(broadcast_of_two_chunks(), machine, 1);
  const auto busy_us = [&](double full_link) {
    const StepGraph::Schedule schedule =
        parts.graph().schedule({2, 2}, {.priority = Priority::longest_path, .full_link = full_link});
    return schedule.busy_us[0][0] + schedule.busy_us[0][1];
  };
  // Sends have the longest paths, so both begin first, and each gets half of the link.
  CHECK(busy_us(0.5) < 0.9 * busy_us(0));
}

TEST_CASE("steps whose paths count as longer begin earlier") {
  const simulate::Machine machine = test_machine();
  const Divided parts = parts_of(broadcast_of_two_chunks(), machine, 1);
  for (const Priority priority : {Priority::longest_path, Priority::staggered})
    for (const size_t first : {0, 1, 2, 3}) {
      StepGraph::Rules rules{.priority = priority, .lengthening = {{0, 0, 0, 0}, {0, 0}}};
      rules.lengthening[0][first] = 1;
      const StepGraph::Schedule schedule = parts.graph().schedule({1, 1}, rules);
      for (size_t group = 0; group < 4; ++group)
        CHECK((schedule.order[0][group].begin[0] > schedule.order[0][first].begin[0]) == (group != first));
    }
}

}  // namespace
}  // namespace narrowcast::plan::schedule
