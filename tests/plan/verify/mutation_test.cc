// Faults that single changes put into correct plans are found.
#include <algorithm>
#include <string>

#include "doctest/doctest.h"
#include "plan/verify/model_checker.h"
#include "plan/verify/verify.h"
#include "support/plan_mutations.h"
#include "support/plans.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

// oracle_test.cc has the plans of two ranks, and compares every verdict with the model checker's. Here it confirms
// those mutants that are proved. The exception are changes of an order, which have too many states: the ones that are
// proved exchange steps that do not depend on each other, or sources of a sum.
TEST_CASE("single changes of plans of three ranks are refuted if they matter") {
  size_t mutants = 0, refuted = 0, exchanges = 0;
  for (const Plan& plan : correct_plans()) {
    if (plan.rank_count() != 3) continue;
    size_t index = 0;
    for (const Mutant& mutant : mutants_of(plan)) {
      if (index++ % sample != 0) continue;
      ++mutants;
      const Report report = verify(mutant.plan, {.split = false});
      CHECK(report.verdict != Verdict::unsupported);
      if (report.verdict == Verdict::refuted) {
        ++refuted;
        CHECK(!report.finding.message.empty());
        continue;
      }
      const bool is_exchange = mutant.change.find("exchanged") != std::string::npos;
      exchanges += is_exchange ? 1 : 0;
      if (is_exchange) continue;
      const Exploration exploration = explore(has_loop(plan) ? unrolled(mutant.plan, 2) : mutant.plan);
      CHECK_MESSAGE(exploration.outcome != Outcome::incorrect, plan.name, "; ", mutant.change, ": ", exploration.fault);
    }
  }
  MESSAGE(mutants, " mutants, ", refuted, " refuted, ", exchanges, " proved exchanges");
  CHECK(refuted > 90 * mutants / 100);
}

TEST_CASE("a ring needs the least depth that is reported, and no more") {
  size_t plans = 0;
  for (const Plan& plan : correct_plans()) {
    const uint32_t depth = verify(plan).least_depth;
    const bool has_rings = std::any_of(plan.channels.begin(), plan.channels.end(),
                                       [](const Channel& channel) { return channel.kind == ChannelKind::ring; });
    CHECK((depth != 0) == has_rings);
    if (depth == 0) continue;
    ++plans;
    CHECK(verify(plan, {.depth = depth}).verdict == Verdict::proved);
    if (depth == 1) continue;
    const Report report = verify(plan, {.depth = depth - 1});
    CHECK(report.verdict == Verdict::refuted);
    CHECK(report.finding.property == Property::deadlock);
    CHECK(report.finding.trace.size() >= 2);
  }
  CHECK(plans >= 20);
}

}  // namespace
}  // namespace narrowcast::plan::verify
