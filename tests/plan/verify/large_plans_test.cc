// The verifier's time for large plans. The limits have room for slow machines and sanitizers.
#include <string>

#include "doctest/doctest.h"
#include "plan/verify/verify.h"
#include "support/plans.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

#if defined(__SANITIZE_ADDRESS__)
constexpr double slowness = 20;
#else
constexpr double slowness = 4;
#endif

void check_time(const Plan& plan, double seconds) {
  const Report report = verify(plan);
  MESSAGE(plan.name, ": ", report.steps, " steps in ", report.seconds, " s");
  CHECK_MESSAGE(report.verdict == Verdict::proved, report.finding.message);
  CHECK(report.split_ok);
  CHECK(report.seconds < slowness * seconds);
}

TEST_CASE("28,000 steps at 64 ranks are proved within a second") {
  check_time(wide_all_reduce(64, 4, 1), 1);
  check_time(wide_all_reduce(64, 4, 2), 1);
  check_time(wide_memory_all_gather(64, 7), 1);
}

}  // namespace
}  // namespace narrowcast::plan::verify
