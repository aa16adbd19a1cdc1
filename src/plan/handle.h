// The handles of plan.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "narrowcast/plan.h"
#include "plan/ir.h"
#include "plan/verify/report.h"
#include "status/error.h"
#include "status/text.h"

namespace narrowcast::plan {

// A plan as it runs, and the verifier's report about it.
struct Proof {
  ncast_status status = NCAST_OK;  // OK: it is proved
  std::string message;             // if it is not OK
  Plan lowered;
  verify::Report report;
};

}  // namespace narrowcast::plan

struct ncast_plan {
 public:
  ncast_plan() = default;
  explicit ncast_plan(narrowcast::plan::Plan given) : plan(std::move(given)) {}

  narrowcast::plan::Plan plan;  // immutable once other functions have the handle

  // Computed on first use. Thread-safe.
  const narrowcast::plan::Proof& proof() const;
  // The verifier's report about the plan as it is (not lowered). Computed on first use.
  const narrowcast::plan::verify::Report& report() const;
  // The name of the plan's times in cost models: "plan:two-shot@1a2b3c4d", from its name and its content.
  const std::string& cost_name() const;

 private:
  struct Made {
    std::once_flag proved, verified, named;
    narrowcast::plan::Proof proof;
    narrowcast::plan::verify::Report report;
    std::string cost_name;
  };
  std::unique_ptr<Made> made_ = std::make_unique<Made>();
};

namespace narrowcast::plan {

// Error: INVALID_ARGUMENT if `plan` is NULL.
inline ncast_status check_plan(const char* function, const ncast_plan* plan) {
  return plan != nullptr ? NCAST_OK : fail(NCAST_INVALID_ARGUMENT, "%s: plan is NULL", function);
}

}  // namespace narrowcast::plan
