// The plans of the settings, as communicators use them.
#pragma once

#include <string_view>
#include <vector>

#include "narrowcast/plan.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

// A plan for calls of one type and reduction.
struct PlanForCalls {
  const PlanFile* file;
  const ncast_plan* plan;
  const char* name;
  ncast_dtype dtype;
  ncast_redop redop;
  ncast_plan_use use;
};

// Those for communicators of this size and name, in an order that is the same on all ranks. The files are read as plans
// when the first communicator needs them. Invalid ones are ignored with a warning.
std::vector<PlanForCalls> plans_for(int ranks, std::string_view communicator);

// Logs why a plan is not used, once per process.
void log_unused(const PlanForCalls& plan, const char* why);

}  // namespace narrowcast::nccl
