// ncast_plan_schedule, for the executor that knows which plans it can run.
#pragma once

#include "narrowcast/plan.h"
#include "plan/schedule/scheduler.h"

namespace narrowcast::plan::schedule {

// The arguments are those of ncast_plan_schedule. kernels: not used if the caller wants plans for other executors.
ncast_status schedule_plan(const ncast_plan* lowered, const char* machine_json, const ncast_plan_simulation* simulation,
                           const Kernels& kernels, ncast_plan** scheduled, ncast_text** report);

}  // namespace narrowcast::plan::schedule
