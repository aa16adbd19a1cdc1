// Whether a plan computes what its operation does.
#pragma once

#include <cstdint>

#include "plan/verify/plan_view.h"

namespace narrowcast::plan::verify::testing {

// Executes one call, without races, in an order that depends on the seed. Throws Fault if an output is wrong.
void check_results(const PlanView& view, uint32_t seed);

}  // namespace narrowcast::plan::verify::testing
