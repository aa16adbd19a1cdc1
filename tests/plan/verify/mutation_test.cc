// Faults that single changes put into correct plans are found.
#include <algorithm>
#include <set>
#include <string>

#include "doctest/doctest.h"
#include "plan/verify/model_checker.h"
#include "plan/verify/verify.h"
#include "support/plan_mutations.h"
#include "support/plans.h"
#include "support/sanitized.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

// oracle_test.cc compares every verdict about plans of two ranks with the model checker's. Here it explores those
// mutants that are proved, except those of two plans that have millions of states: steps or sources exchanged in two
// shots by packets, and relaxed signals in a pipelined all-gather. The same changes of the same plans of two ranks are
// explored there, and the verifier has no rule that depends on the number of ranks. With sanitizers it explores none:
// they find nothing here that they do not find there.
bool is_explored(const Plan& plan) {
  return !tests::sanitized && !plan.name.starts_with("two-shot all-reduce by packets") &&
         !plan.name.starts_with("pipelined");
}

// A change without the rank and without the offsets that it exchanges: the ranks of these plans do the same with
// rotated chunks, so a change of one has the states of the same change of another.
std::string kind_of(const std::string& change) {
  std::string kind = change.substr(change.find(", "));
  if (const size_t offsets = kind.find(": offsets "); offsets != std::string::npos) kind.resize(offsets);
  return kind;
}

TEST_CASE("single changes that break plans of three ranks are refuted") {
  size_t mutants = 0, refuted = 0, proved = 0, explored = 0;
  for (const Plan& plan : correct_plans()) {
    if (plan.rank_count() != 3) continue;
    const int calls = plan.scratch_copies == 2 ? 3 : 2;
    size_t index = 0;
    std::set<std::string> kinds;
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
      if (!is_explored(plan)) continue;
      ++proved;
      if (!kinds.insert(kind_of(mutant.change)).second) continue;
      const Exploration exploration = explore(has_loop(plan) ? unrolled(mutant.plan, 2) : mutant.plan, calls, 500'000);
      CHECK_MESSAGE(exploration.outcome == Outcome::correct, plan.name, "; ", mutant.change, ": ", exploration.fault);
      ++explored;
    }
  }
  MESSAGE(mutants, " mutants, ", refuted, " refuted, ", proved, " proved, ", explored,
          " of them explored and correct, ", mutants - refuted - proved, " of plans that are not explored");
  CHECK((explored != 0) == !tests::sanitized);
  // As if all mutants of plans that are not explored changed what the plan does.
  if (!tests::sanitized) CHECK(refuted * 100 >= 99 * (mutants - proved));
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
