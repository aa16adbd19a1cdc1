// Proves or refutes lowered plans. docs/design/plans.md, "What is proved", lists the properties.
#pragma once

#include <cstdint>
#include <span>

#include "plan/ir.h"
#include "plan/verify/report.h"

namespace narrowcast::plan::verify {

struct Options {
  uint32_t depth = 0;  // of every ring; 0: as the plan states
  bool split = true;   // also verify the plan with every message split into messages of one chunk
};

// Verifies one plan: three successive calls, in place and out of place as the plan says.
Report verify(const Plan& plan, const Options& options = {});

// Verifies plans whose calls follow each other on the same communicator, in this order and then from the first again,
// so all have as many ranks. They share the scratch memory, but not rings or semaphores. The report is about the first
// plan that is not proved, or else about all of them: the maximum of depths and roundings.
Report verify(std::span<const Plan* const> plans, const Options& options = {});

}  // namespace narrowcast::plan::verify
