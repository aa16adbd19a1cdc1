// How many turns later than others the steps of a plan are executed.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::simulate {

// By rank, group and step.
using Stages = std::vector<std::vector<std::vector<uint32_t>>>;

// The stage of a step is the largest number of messages on a path that leads to it. In turn t kernels that reduce
// execute the steps of stage s for their micro-batch t - s: a message has had a turn to arrive when it is received.
// Empty if the plan has other steps than copies and reductions, or other channels than rings: it has one stage. Empty
// also if steps wait for each other.
Stages stages_of(const Plan& plan);

}  // namespace narrowcast::plan::simulate
