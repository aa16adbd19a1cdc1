// What tests of the verifier expect of its reports.
#pragma once

#include <algorithm>
#include <string>

#include "doctest/doctest.h"
#include "plan/verify/verify.h"
#include "support/plans.h"

namespace narrowcast::plan::verify::testing {

inline void check_proved(const Plan& plan) {
  const Report report = verify(plan);
  CHECK_MESSAGE(report.verdict == Verdict::proved, report.finding.message);
  CHECK_MESSAGE(report.split_ok, report.split_finding.message);
}

inline Finding check_refuted(const Plan& plan, Property property, const std::string& text) {
  const Report report = verify(plan);
  CHECK(report.verdict == Verdict::refuted);
  CHECK(std::string(name_of(report.finding.property)) == name_of(property));
  CHECK_MESSAGE(report.finding.message.find(text) != std::string::npos, report.finding.message);
  return report.finding;
}

inline bool mentions(const Finding& finding, const std::string& text) {
  return std::any_of(finding.trace.begin(), finding.trace.end(),
                     [&](const TraceStep& step) { return step.text.find(text) != std::string::npos; });
}

inline Step& step_of(Plan& plan, int rank, size_t group, size_t step) {
  return plan.ranks[static_cast<size_t>(rank)].groups[group].steps[step];
}

// Rank 0 sends its input, the root's, to rank 1.
inline Plan broadcast() {
  Plan plan = empty_plan(Operation::broadcast, 2);
  const uint32_t ring = add_ring(plan, 0, 1);
  add(plan, 0, copy(input(0), {output(0), message(ring)}));
  add(plan, 1, copy(message(ring), {output(0)}));
  return plan;
}

}  // namespace narrowcast::plan::verify::testing
