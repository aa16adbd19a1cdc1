// Plans of a few kilobytes that would take minutes and gigabytes.
#include "plan/limits.h"

#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/plan.h"
#include "plan/budget.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/verify/verify.h"
#include "support/plans.h"
#include "support/processor_seconds.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

// A plan of one rank, whose text is short.
Plan plan_of(std::vector<std::vector<Step>> groups, uint32_t instances = 1, uint32_t chunks = 1) {
  Plan plan = empty_plan(Operation::all_reduce, 1, chunks, 0);
  plan.instances = instances;
  add_memory(plan, 0, 0);
  for (std::vector<Step>& steps : groups) plan.ranks[0].groups.push_back({std::move(steps)});
  REQUIRE(json::write(plan).size() < 8 << 10);
  return plan;
}
Plan with_scratch(uint32_t chunks, Plan plan) {
  plan.ranks[0].scratch_chunks = chunks;
  return plan;
}

// The plan is not even replicated.
void check_too_many(const Plan& plan, const std::string& what, const std::string& number, const std::string& most) {
  Plan lowered;
  CHECK(lower::lower(plan, &lowered) == NCAST_UNSUPPORTED);
  CHECK(std::string(ncast_last_error()) == "the plan is too large: " + std::to_string(plan.instances) + " instances, " +
                                               what + " " + number + "; at most " + most + " are supported");
  CHECK(lowered.ranks.empty());
}

TEST_CASE("whatever instances multiply is counted before the plan is replicated") {
  const auto check_steps = [](const Plan& plan, const std::string& number) {
    check_too_many(plan, "steps in all:", number, "4000000");
  };
  const Step wide = copy(input(0), {output(0)}, 4'000'000'000);
  check_steps(plan_of({{copy(input(0), {output(0)})}}, 4'000'000'000), "4000000000");
  check_steps(plan_of({{copy(input(0), {output(0)}, 5000)}}, 1000, 5000), "5000000");
  check_steps(plan_of({{wide, wide}}, 4'000'000'000), "8000000000");

  const auto check_listed = [](const std::vector<std::vector<Step>>& groups, const std::string& number,
                               size_t barriers = 0) {
    Plan plan = plan_of(groups, 1'000'000);
    plan.ranks[0].barriers.assign(barriers, {0});
    check_too_many(plan, "operands, dependences, channels and groups in all:", number, "10000000");
  };
  check_listed(std::vector<std::vector<Step>>(100), "101000000");
  check_listed({{copy(input(0), std::vector<Operand>(50, output(0)))}}, "53000000");
  check_listed({{signal(std::vector<uint32_t>(100, 0))}}, "102000000");
  check_listed({{sync()}, {after(sync(), std::vector<StepId>(98, {0, 0}))}}, "101000000");
  check_listed({{}}, "100000000", 49);

  const auto check_highest = [](const Plan& plan) {
    check_too_many(plan, "the highest number of a chunk or channel is", "4294968000", "4294967295");
  };
  check_highest(plan_of({}, 1000, 4'294'968));
  check_highest(with_scratch(4'294'968, plan_of({}, 1000)));
  check_highest(plan_of({{copy(input(0), {output(4'294'967)})}}, 1000));
}

void check_unsupported(const Plan& plan, const std::string& message, double most_seconds) {
  const double begin = narrowcast::testing::processor_seconds();
  const Report report = verify(plan);
  const double seconds = narrowcast::testing::processor_seconds() - begin;
  CHECK(report.verdict == Verdict::unsupported);
  CHECK(report.finding.message == "the plan is too large: " + message);
  CHECK(report.finding.trace.empty());
  MESSAGE(seconds, " s");
  CHECK(seconds < most_seconds);
}

TEST_CASE("iterations and chunks are counted before the plan is proved") {
  check_unsupported(plan_of({{loop({copy(input(0), {output(0)}, 1'000'000)})}}, 1, 1'000'000),
                    "steps, with loops unrolled and messages split: 4000001; at most 4000000 are supported", 0.1);
  check_unsupported(plan_of({{copy(input(0), {output(0)}, 10'000'000)}}, 1, 10'000'000),
                    "chunks of buffers: 20000000; at most 16000000 are supported", 0.1);
  check_unsupported(plan_of({}, 1, 4'000'000'000), "chunks of a buffer: 4000000000; at most 16000000 are supported",
                    0.1);
  check_unsupported(with_scratch(UINT32_MAX, plan_of({})),
                    "chunks of buffers: 4294967297; at most 16000000 are supported", 0.1);
  // They do not count for the next proof.
  CHECK(verify(plan_of({{copy(input(0), {output(0)})}})).verdict == Verdict::proved);
}

// Each round shifts the sums by a chunk and adds the input, so that values have more and more contributions.
Plan with_growing_sums(uint32_t chunks, uint32_t rounds) {
  std::vector<Step> steps = {copy(input(0), {scratch(0)}, chunks)};
  for (uint32_t round = 1; round <= rounds; ++round) {
    steps.push_back(copy(scratch(0), {scratch(chunks + 1)}, chunks));
    steps.push_back(reduce({scratch(chunks + 1), input(round)}, {scratch(0)}, chunks - round));
  }
  return with_scratch(2 * chunks + 2, plan_of({steps}, 1, chunks));
}

TEST_CASE("a proof ends when it has taken so many operations, or so much memory") {
  const Plan plan = with_growing_sums(3000, 20);
  {
    const Budget budget(5'000'000);
    check_unsupported(plan, "it takes more than 5000000 operations", 1);
  }
  {
    const Budget budget(max_work, 8 << 20);
    check_unsupported(plan, "it takes more than 8 MiB of memory", 1);
  }
  CHECK(verify(plan).verdict == Verdict::refuted);
}

}  // namespace
}  // namespace narrowcast::plan::verify
