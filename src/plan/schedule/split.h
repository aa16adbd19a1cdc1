// Divides plans into groups as small as their connections allow.
#pragma once

#include <optional>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// Distributes the steps over as many groups as possible. A ring has one sending and one receiving group, so steps that
// send on a ring, or receive from it, stay together; every other step gets a group of its own. Steps depend on each
// other where they access the same memory of a rank, in the order of the plan. Steps that do not move values are
// dropped.
// Empty unless the plan has only rings, copies and reductions, and synchronized threads.
// prediction: of the proved plan in one micro-batch, with a timeline.
std::optional<Plan> split(const Plan& plan, const simulate::Prediction& prediction);

}  // namespace narrowcast::plan::schedule
