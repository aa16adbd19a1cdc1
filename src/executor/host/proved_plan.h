// A plan that the host backend can run.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/ir.h"
#include "plan/verify/report.h"

namespace narrowcast::executor::host {

// Lowered and proved. Immutable.
struct ProvedPlan {
  ProvedPlan(plan::Plan lowered, const plan::verify::Report& proof)
      : plan(std::move(lowered)),
        completing(proof.completing),
        least_depth(std::max(proof.least_depth, proof.depth_needed_when_split)) {}

  plan::Plan plan;
  // From the proof: the steps that divide when the call averages, and how many messages rings must hold at least.
  std::vector<plan::verify::Where> completing;
  uint32_t least_depth;
};

}  // namespace narrowcast::executor::host
