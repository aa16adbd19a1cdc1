// Loading plans of users.
#pragma once

#include <memory>

#include "executor/host/communicator.h"
#include "executor/loaded_plan.h"
#include "plan/verify/report.h"

namespace narrowcast::executor::host {

// Implements ncast_comm::load_plan. After the errors MISMATCH, INVALID_ARGUMENT and REMOTE_ERROR of this function
// itself the communicator remains usable; all ranks get an error.
ncast_status load_plan(Communicator& comm, const plan::Plan& plan, const plan::verify::Report& proof, ncast_dtype dtype,
                       ncast_redop op, std::unique_ptr<LoadedPlan>* loaded);

}  // namespace narrowcast::executor::host
