// The properties `structure` and `bounds`: what can be said about a plan without executing it.
#pragma once

#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

// Every index, count, codec and operand is valid, and every operand lies within its buffer. A plan that passes can be
// flattened.
Finding check_structure(const Plan& plan);
// Rings have one sender and one receiver group, whose messages match. All groups of a barrier visit it equally often.
// Semaphores return to their first value.
Finding check_matching(const FlatPlan& flat_plan);

}  // namespace narrowcast::plan::verify
