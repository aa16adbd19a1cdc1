// The properties `structure` and `bounds`, which are checked without executing the plan.
#pragma once

#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

// Every index, count, codec and operand is valid, and every operand lies within its buffer. A plan that passes can be
// flattened.
Finding check_structure(const Plan& plan);
// Rings have one sending and one receiving group, whose messages match. All groups of a barrier visit it equally often.
// Semaphores have their initial value again after a call.
Finding check_matching(const FlatPlan& flat_plan);

}  // namespace narrowcast::plan::verify
