// A plan that the host backend can run.
#pragma once

#include <vector>

#include "plan/ir.h"
#include "plan/verify/report.h"

namespace narrowcast::executor::host {

// Lowered and proved. Immutable.
struct ProvedPlan {
  plan::Plan plan;
  // From the proof: the steps that divide when the call averages.
  std::vector<plan::verify::Where> completing;
};

}  // namespace narrowcast::executor::host
