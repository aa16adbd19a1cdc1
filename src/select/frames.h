// Calls of the host backend, whose ranks are processes on one host or several.
#pragma once

#include "select/decision.h"

namespace narrowcast::select {

Decision decide_frames(const CallShape& shape, const CostModel& model);

// The plan of a call between processes on CPUs; NULL if no plan describes it.
const char* plan_between_processes(Operation operation);
// The same for ranks of which some share a host and others do not. is_exact: of its codecs. Values that every rank
// receives or combines cross between hosts once, and lossy codecs combine values of ranks, not of hosts.
const char* plan_between_hosts(Operation operation, bool is_exact);

}  // namespace narrowcast::select
