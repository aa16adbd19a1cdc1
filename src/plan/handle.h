// The handles of plan.h.
#pragma once

#include "narrowcast/plan.h"
#include "plan/ir.h"
#include "status/error.h"
#include "status/text.h"

struct ncast_plan {
  narrowcast::plan::Plan plan;
};

namespace narrowcast::plan {

// Error: INVALID_ARGUMENT if `plan` is NULL.
inline ncast_status check_plan(const char* function, const ncast_plan* plan) {
  return plan != nullptr ? NCAST_OK : fail(NCAST_INVALID_ARGUMENT, "%s: plan is NULL", function);
}

}  // namespace narrowcast::plan
