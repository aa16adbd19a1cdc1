#include "plan/handle.h"

#include <cstdio>

#include "plan/cost_name.h"
#include "plan/json/json.h"
#include "plan/lower/lower.h"
#include "plan/verify/verify.h"
#include "status/fnv1a.h"

using namespace narrowcast;

namespace {

constexpr size_t most_letters = 64;

// The letters and digits of a name, other characters as single hyphens.
std::string simplified(const std::string& name) {
  std::string result;
  for (const char one : name) {
    if (result.size() == most_letters) break;
    const bool is_plain =
        (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') || one == '_';
    if (is_plain)
      result += one;
    else if (!result.empty() && result.back() != '-')
      result += '-';
  }
  return result.empty() ? "unnamed" : result;
}

void prove(const plan::Plan& plan, plan::Proof* proof) {
  proof->status = plan::lower::lower(plan, &proof->lowered, &proof->report);
  if (proof->status != NCAST_OK) {
    proof->message = ncast_last_error();
    return;
  }
  const plan::verify::Finding& finding = proof->report.finding;
  if (proof->report.verdict == plan::verify::Verdict::proved) return;
  const bool refuted = proof->report.verdict == plan::verify::Verdict::refuted;
  proof->status = refuted ? NCAST_INVALID_ARGUMENT : NCAST_UNSUPPORTED;
  const std::string name = plan.name.empty() ? "" : " '" + plan.name + "'";
  proof->message = refuted ? "the plan" + name + " is wrong (" + plan::verify::name_of(finding.property) +
                                 "): " + plan::verify::describe(finding.where) + ": " + finding.message
                           : "the plan" + name + " is not proved: " + finding.message;
}

}  // namespace

const plan::Proof& ncast_plan::proof() const {
  std::call_once(made_->proved, [this] { prove(plan, &made_->proof); });
  return made_->proof;
}

const plan::verify::Report& ncast_plan::report() const {
  std::call_once(made_->verified, [this] { made_->report = plan::verify::verify(plan); });
  return made_->report;
}

const std::string& ncast_plan::cost_name() const {
  std::call_once(made_->named, [this] {
    char hash[12];
    std::snprintf(hash, sizeof hash, "@%08x", static_cast<uint32_t>(fnv1a(plan::json::write(plan))));
    made_->cost_name = std::string(plan::cost_prefix) + simplified(plan.name) + hash;
  });
  return made_->cost_name;
}
