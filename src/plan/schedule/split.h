// Plans divided into groups that are as small as their connections allow.
#pragma once

#include <optional>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// Whether a plan only has rings, copies and reductions, and its threads are synchronized.
bool can_split(const Plan& plan);

// The same steps in as many groups as possible. A ring has one sending and one receiving group, so the steps that send
// on a ring, or receive from it, stay together; every other step gets a group of its own. Steps wait for each other
// where they access the same memory of a rank, in the order in which the plan does it. Steps that move nothing are left
// out.
// Empty if the plan cannot be split.
// prediction: of the proved plan in one micro-batch, with a timeline.
// by_chunk: also divides steps of several chunks into steps of one.
std::optional<Plan> split(const Plan& plan, const simulate::Prediction& prediction, bool by_chunk);

}  // namespace narrowcast::plan::schedule
