// Proves or refutes lowered plans. docs/design/plans.md, "What is proved", lists the properties.
#pragma once

#include <cstdint>

#include "plan/ir.h"
#include "plan/verify/report.h"

namespace narrowcast::plan::verify {

struct Options {
  uint32_t depth = 0;  // of every ring; 0: as the plan states
  bool split = true;   // also verify the plan with every message split into messages of one chunk
};

// Verifies three successive calls, in place and out of place as the plan says.
Report verify(const Plan& plan, const Options& options = {});

}  // namespace narrowcast::plan::verify
