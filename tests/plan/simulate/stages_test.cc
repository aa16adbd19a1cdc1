#include "plan/simulate/stages.h"

#include <string_view>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/builders/builders.h"
#include "plan/lower/lower.h"
#include "support/plans.h"

namespace narrowcast::plan::simulate {
namespace {

using namespace verify::testing;

Stages built(std::string_view name, Operation operation, int ranks) {
  Plan plan;
  REQUIRE(builders::build(name, {.operation = operation, .ranks = ranks}, &plan) == NCAST_OK);
  REQUIRE(lower::lower(plan, &plan) == NCAST_OK);
  return stages_of(plan);
}

uint32_t last_stage(const Stages& stages) {
  uint32_t last = 0;
  for (const auto& rank : stages)
    for (const auto& group : rank)
      for (const uint32_t stage : group) last = std::max(last, stage);
  return last;
}

TEST_CASE("the last stage is the length of the longest chain of messages") {
  CHECK(last_stage(built("all_pairs", Operation::all_gather, 4)) == 1);
  CHECK(last_stage(built("all_pairs", Operation::reduce_scatter, 4)) == 1);
  CHECK(last_stage(built("all_pairs", Operation::all_reduce, 4)) == 2);
  CHECK(last_stage(built("ring", Operation::all_gather, 4)) == 3);
  CHECK(last_stage(built("ring", Operation::all_reduce, 4)) == 6);
}

// Rank 0 receives a chunk in one group, which another one sends back.
Plan sending_back(std::vector<Step> steps) {
  Plan plan = empty_plan(Operation::all_gather, 2);
  add_ring(plan, 0, 1);
  add_ring(plan, 1, 0);
  plan.ranks[0].groups = {{std::move(steps)}, {{copy(message(1), {output(1)})}}};
  plan.ranks[1].groups = {{{copy(input(0), {message(1)}), copy(message(0), {output(1)})}}};
  return plan;
}

TEST_CASE("steps follow their dependences and the writers of what they read") {
  const auto stages = [](const std::vector<Step>& steps) { return stages_of(sending_back(steps)); };
  const Step send = copy(output(1), {message(0)});
  CHECK(stages({after(send, {{1, 0}})}) == Stages{{{1}, {1}}, {{0, 2}}});
  CHECK(stages({after(sync(), {{1, 0}}), send}) == Stages{{{1, 1}, {1}}, {{0, 2}}});
  CHECK(stages({after(sync(), {{1, 0}}), copy(input(0), {message(0)})}) == Stages{{{1, 1}, {1}}, {{0, 2}}});
  CHECK(stages({copy(input(0), {message(0)})}) == Stages{{{0}, {1}}, {{0, 1}}});
  CHECK(stages({after(copy(output(1), {output(0)}), {{1, 0}}), copy(output(0), {message(0)})}) ==
        Stages{{{1, 1}, {1}}, {{0, 2}}});
}

TEST_CASE("values that are sent before they are overwritten do not follow the writer") {
  // Two ranks exchange a chunk, which one group sends before the other one overwrites it.
  Plan plan = empty_plan(Operation::all_reduce, 2, 1, 2);
  for (const int rank : {0, 1}) {
    const uint32_t sends = add_ring(plan, rank, 1 - rank), receives = 1 - sends;
    add(plan, rank, after(copy(message(receives), {input(0)}), {{1, 0}}), 0);
    add(plan, rank, copy(input(0), {message(sends)}), 1);
  }
  CHECK(stages_of(plan) == Stages{{{1}, {0}}, {{1}, {0}}});
}

TEST_CASE("there are no stages if steps wait for each other, or in plans with semaphores") {
  Plan plan = sending_back({copy(input(0), {message(0)})});
  CHECK(!stages_of(plan).empty());
  add_memory(plan, 0, 1);
  CHECK(stages_of(plan).empty());
  const Step pass_on = copy(message(1), {message(0)});
  CHECK(stages_of(sending_back({pass_on, pass_on})).empty());
}

}  // namespace
}  // namespace narrowcast::plan::simulate
