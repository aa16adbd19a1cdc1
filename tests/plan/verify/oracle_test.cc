// The verifier's verdicts, compared with those of the model checker.
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "plan/verify/model_checker.h"
#include "plan/verify/verify.h"
#include "support/plan_mutations.h"
#include "support/plans.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

// Calls after which nothing new can happen: a copy of the scratch is used again.
int calls_for(const Plan& plan) { return plan.scratch_copies == 2 ? 3 : 2; }

Exploration explore_unrolled(const Plan& plan, size_t max_states = 200'000) {
  return has_loop(plan) ? explore(unrolled(plan, 2), calls_for(plan), max_states)
                        : explore(plan, calls_for(plan), max_states);
}

std::vector<Plan> tiny_plans() {
  std::vector<Plan> plans;
  for (Plan& plan : correct_plans())
    if (plan.rank_count() == 2) plans.push_back(std::move(plan));
  return plans;
}

// Compares verdicts. The model checker must confirm whatever is proved.
struct Comparison {
  size_t plans = 0, refuted = 0, equivalent = 0, unexplored = 0;
  size_t strict = 0;  // refuted, although the model checker finds no fault

  void add(const std::string& name, const Plan& plan) {
    const Report report = verify(plan);
    CHECK(report.verdict != Verdict::unsupported);
    ++plans;
    refuted += report.verdict == Verdict::refuted ? 1 : 0;
    // The model checker requires valid indices and matching counts.
    if (report.finding.property == Property::structure || report.finding.property == Property::bounds) return;
    const Exploration exploration = explore_unrolled(plan);
    if (exploration.outcome == Outcome::too_large) {
      ++unexplored;
      return;
    }
    const bool is_correct = exploration.outcome == Outcome::correct;
    equivalent += is_correct ? 1 : 0;
    if (report.verdict == Verdict::proved) {
      CHECK_MESSAGE(is_correct, name, ": proved, but ", exploration.fault);
    } else if (is_correct) {
      ++strict;
      MESSAGE(name, ": ", std::string(name_of(report.finding.property)), ", ", report.finding.message);
    }
  }

  void print() const {
    MESSAGE(plans, " plans, ", refuted, " refuted, ", equivalent, " correct, ", unexplored, " not explored, ", strict,
            " refuted though correct");
  }
};

TEST_CASE("the model checker finds no fault in correct plans") {
  for (const Plan& plan : tiny_plans()) {
    const Exploration exploration = explore_unrolled(plan);
    CHECK_MESSAGE(exploration.outcome == Outcome::correct, plan.name, ": ", exploration.fault);
  }
}

TEST_CASE("the verifier and the model checker agree about all mutants of small plans") {
  Comparison comparison;
  size_t index = 0;
  for (const Plan& plan : tiny_plans())
    for (const Mutant& mutant : mutants_of(plan))
      if (index++ % sample == 0) comparison.add(plan.name + "; " + mutant.change, mutant.plan);
  comparison.print();
  CHECK(comparison.unexplored == 0);
  CHECK(comparison.strict * 50 <= comparison.plans);
}

// Distributes the steps of each rank over two groups, in their order, with some dependences.
Plan regrouped(const Plan& plan, std::mt19937& random) {
  Plan result = plan;
  for (Rank& rank : result.ranks) {
    std::vector<Step> steps;
    for (const Group& group : rank.groups)
      for (const Step& step : group.steps)
        if (step.kind != StepKind::barrier) steps.push_back(step);
    rank.groups.assign(2, {});
    rank.barriers.clear();
    for (Step& step : steps) {
      const uint32_t group = random() % 2, other = 1 - group;
      step.after.clear();
      if (!rank.groups[other].steps.empty() && random() % 2 == 0)
        step.after.push_back({other, static_cast<uint32_t>(rank.groups[other].steps.size() - 1)});
      rank.groups[group].steps.push_back(std::move(step));
    }
  }
  return result;
}

TEST_CASE("the verifier and the model checker agree about random plans") {
  std::mt19937 random(1);
  Comparison comparison;
  const std::vector<Plan> plans = tiny_plans();
  for (int i = 0; i < 600 / static_cast<int>(sample); ++i) {
    Plan plan = plans[random() % plans.size()];
    std::string name = plan.name;
    if (i % 2 == 0) {
      plan = regrouped(plan, random);
      name += ", regrouped";
    }
    if (i % 3 != 0) {
      std::vector<Mutant> mutants = mutants_of(plan);
      Mutant& mutant = mutants[random() % mutants.size()];
      plan = std::move(mutant.plan);
      name += "; " + mutant.change;
    }
    comparison.add(name, plan);
  }
  comparison.print();
  CHECK(comparison.equivalent * 10 >= comparison.plans);
  CHECK(comparison.strict * 50 <= comparison.plans);
}

}  // namespace
}  // namespace narrowcast::plan::verify
