// A plan that is ready to run on a communicator, for one value type and reduction.
#pragma once

#include "executor/call.h"

namespace narrowcast::executor {

class LoadedPlan {
 public:
  virtual ~LoadedPlan() = default;  // no call of the plan is running; the communicator may have been destroyed

  // Enqueues a call whose arguments have been checked. Its operation, root, type and reduction are those of the plan.
  virtual ncast_status run(const Call& call) = 0;
  // Releases what belongs to the communicator, which still exists. Called once, before the destructor.
  virtual ncast_status release() { return NCAST_OK; }
};

}  // namespace narrowcast::executor
