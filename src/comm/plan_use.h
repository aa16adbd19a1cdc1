// Plans for the calls of a communicator: what decisions know of them, and how calls run them.
#pragma once

#include "executor/call.h"
#include "narrowcast/plan.h"
#include "plan/ir.h"
#include "select/plan_candidate.h"

namespace narrowcast::comm {

// Of a proved plan, for one type and reduction, without limits of the user.
select::PlanCandidate candidate_of(const ncast_plan& plan, ncast_dtype dtype, ncast_redop op);

// Why the calls of a communicator cannot run the plan: whether they are suitable would be known to one rank only. NULL
// if they can.
const char* why_not_for_calls(const plan::Plan& plan, ncast_backend backend);

// use: may be NULL. Errors: INVALID_ARGUMENT, UNSUPPORTED; their messages do not begin with the name of a function.
ncast_status apply_use(const ncast_plan_use* use, select::PlanCandidate* candidate);

// Decides what all ranks know of the call: the plan that runs it instead of the built-in way, if there is one, and the
// codec on the host backend.
void decide(executor::Call* call);

}  // namespace narrowcast::comm
