// The verifier's time and memory for large plans. Time is that of one processor: machines that run tests are busy.
#include <malloc.h>

#include <fstream>
#include <string>

#include "doctest/doctest.h"
#include "plan/budget.h"
#include "plan/verify/verify.h"
#include "support/plans.h"
#include "support/processor_seconds.h"
#include "support/sanitized.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

// The plans take 0.07 to 0.24 s on a quiet machine. The limit, for busy ones, finds proofs whose time grows faster than
// the plan. Under sanitizers it would judge the machine.
Report verify_in_time(const Plan& plan) {
  const double begin = narrowcast::testing::processor_seconds();
  Report report = verify(plan);
  const double seconds = narrowcast::testing::processor_seconds() - begin;
  MESSAGE(plan.name, ": ", report.steps, " steps in ", seconds, " s");
  CHECK_MESSAGE(report.verdict == Verdict::proved, report.finding.message);
  if (!tests::sanitized) CHECK(seconds < 3);
  return report;
}

void check_large(const Plan& plan) {
  const Report report = verify_in_time(plan);
  CHECK(report.split_ok);
  CHECK(report.steps >= 28'000);
}

TEST_CASE("28,000 steps at 64 ranks are proved within seconds") {
  if (!tests::sanitized) check_large(wide_all_reduce(64, 4, 1));
  check_large(wide_all_reduce(64, 4, 2));
  check_large(wide_memory_all_gather(64, 7));
}

// A plan in which so many groups also signal other ones, on one channel.
Plan with_signals(uint32_t groups) {
  Plan plan = memory_all_gather(2);
  const uint32_t channel = add_memory(plan, 0, 1);
  for (uint32_t group = 0; group < groups; ++group) {
    plan.ranks[0].groups.push_back({{signal({channel})}});
    plan.ranks[1].groups.push_back({{wait({channel})}});
  }
  return plan;
}

TEST_CASE("a thousand signals between groups are proved within seconds") { verify_in_time(with_signals(1000)); }

TEST_CASE("successive waits can need signals of later calls than the waits of another group") {
  Plan plan = memory_all_gather(2);
  const uint32_t channel = add_memory(plan, 0, 1, 1);
  plan.ranks[0].groups.push_back({{signal({channel}), signal({channel})}});
  plan.ranks[0].groups.push_back({{signal({channel})}});
  plan.ranks[1].groups.push_back({{wait({channel}), wait({channel})}});
  plan.ranks[1].groups.push_back({{wait({channel})}});
  const Report report = verify(plan);
  CHECK_MESSAGE(report.verdict == Verdict::proved, report.finding.message);
}

TEST_CASE("more signals between groups than can be compared are neither proved nor refuted") {
  Plan plan = with_signals(2);
  for (Rank& rank : plan.ranks) {
    std::vector<Step>& steps = rank.groups.back().steps;
    steps.resize(max_shared_signals, steps.front());
  }
  const Report report = verify(plan);
  CHECK(report.verdict == Verdict::unsupported);
  CHECK(report.finding.message ==
        "the plan is too large: signals between several groups on a channel: 10001; at most 10000 are supported");
}

// VmRSS or VmHWM (the peak) of this process.
double megabytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  double kilobytes = 0;
  for (std::string word; status >> word;)
    if (word == name + ":") status >> kilobytes;
  return kilobytes / 1024;
}

// A deep copy of each clock would take 400 MB.
TEST_CASE("the clocks of 896 groups at 64 ranks share their memory") {
  const Plan plan = wide_memory_all_gather(64, 7);
  malloc_trim(0);
  const bool has_peak = (std::ofstream("/proc/self/clear_refs") << 5).flush().good();  // VmHWM = VmRSS
  const double before = megabytes("VmRSS");
  const Budget budget(max_work, uint64_t{100} << 20);
  const Report report = verify(plan, {.split = false});
  CHECK_MESSAGE(report.verdict == Verdict::proved, report.finding.message);
  const double peak = megabytes("VmHWM") - before;
  MESSAGE(peak, " MB");
  if (has_peak && !tests::sanitized) CHECK(peak < 100);
}

TEST_CASE("a plan with more than 4,096 groups that share memory is neither proved nor refuted") {
  if (!tests::sanitized) CHECK(verify(wide_all_reduce(8, 256, 1), {.split = false}).verdict == Verdict::proved);
  const Report report = verify(wide_all_reduce(8, 257, 1));
  CHECK(report.verdict == Verdict::unsupported);
  CHECK(report.finding.message ==
        "the plan is too large: groups that share memory with others, on all ranks: 4112; at most 4096 are supported");
}

}  // namespace
}  // namespace narrowcast::plan::verify
