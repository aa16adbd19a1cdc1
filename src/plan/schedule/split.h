// Plans divided into groups that are as small as their connections allow.
#pragma once

#include <optional>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// The same steps in as many groups as possible. A ring has one sending and one receiving group, so the steps that send
// on a ring, or receive from it, stay together; every other step gets a group of its own. Steps wait for each other
// where they access the same memory of a rank, in the order in which the plan does it. Steps that move nothing are left
// out.
// Empty unless the plan only has rings, copies and reductions, and its threads are synchronized.
// prediction: of the proved plan in one micro-batch, with a timeline.
std::optional<Plan> split(const Plan& plan, const simulate::Prediction& prediction);

}  // namespace narrowcast::plan::schedule
