// A plan that is ready to run on a communicator, for one value type and reduction.
#pragma once

#include "executor/call.h"

namespace narrowcast::executor {

// ncast_comm::prepare_plan makes it, on one rank; then all ranks load it together.
class LoadedPlan {
 public:
  virtual ~LoadedPlan() = default;  // no call of the plan is running; the communicator may have been destroyed

  // Collective, once all ranks have prepared the same plan. After an error the plan is only destroyed; all ranks get
  // one.
  virtual ncast_status load() = 0;

  // Enqueues a call whose arguments have been checked. Its operation, root, type and reduction are those of the plan.
  virtual ncast_status run(const Call& call) = 0;
  // Makes a call, whose arguments have been checked, run the plan when it is launched. The plan works for the places of
  // its input and output.
  virtual void assign_to(Call* call) { call->chosen = this; }
  // Releases what belongs to the communicator, which still exists. Called once, before the destructor.
  virtual ncast_status release() { return NCAST_OK; }
};

}  // namespace narrowcast::executor
