// Loading plans of users.
#pragma once

#include <memory>

#include "executor/host/communicator.h"
#include "executor/loaded_plan.h"
#include "plan/verify/report.h"

namespace narrowcast::executor::host {

// Implements ncast_comm::prepare_plan. After an error of the plan's load() the communicator remains usable, unless it
// has failed itself.
ncast_status prepare_plan(Communicator& comm, const plan::Plan& plan, const plan::verify::Report& proof, ncast_redop op,
                          std::unique_ptr<LoadedPlan>* prepared);

}  // namespace narrowcast::executor::host
