#include "plan/verify/verify.h"

#include <string>

#include "doctest/doctest.h"
#include "support/plans.h"

namespace narrowcast::plan::verify {
namespace {

using namespace testing;

std::string text_of(const Finding& finding) {
  std::string text = std::string(name_of(finding.property)) + " at " + describe(finding.where) + ": " + finding.message;
  for (const TraceStep& step : finding.trace) text += "\n    " + describe(step.where) + ": " + step.text;
  return text;
}

TEST_CASE("correct plans are proved, whole and with messages split") {
  for (const Plan& plan : correct_plans()) {
    const Report report = verify(plan);
    CHECK_MESSAGE(report.verdict == Verdict::proved, plan.name, ": ", text_of(report.finding));
    CHECK_MESSAGE(report.split_ok, plan.name, ": ", text_of(report.split_finding));
  }
}

}  // namespace
}  // namespace narrowcast::plan::verify
