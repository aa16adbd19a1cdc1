// Stages: how many turns the steps of a plan are delayed.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::simulate {

// By rank, group and step.
using Stages = std::vector<std::vector<std::vector<uint32_t>>>;

// The stage of a step is the largest number of messages on a path to it. In turn t, kernels that reduce execute the
// steps of stage s for their micro-batch t - s, so that a message has one turn to arrive.
// Empty (a single stage) if the plan has steps other than copies and reductions, or channels other than rings, or if
// steps wait for each other.
Stages stages_of(const Plan& plan);

}  // namespace narrowcast::plan::simulate
