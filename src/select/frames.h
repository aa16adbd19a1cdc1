// Calls of the host backend, whose ranks are processes on one host or several.
#pragma once

#include "select/decision.h"

namespace narrowcast::select {

Decision decide_frames(const CallShape& shape, const CostModel& model);

// The plan of a call between processes on CPUs; NULL if no plan describes it. is_exact: its codecs are.
const char* plan_of_frames(const CallShape& shape, bool is_exact);
// The same if all ranks share a host, or none does.
const char* plan_between_processes(Operation operation);

}  // namespace narrowcast::select
