// How the ranks agree that they all load a plan.
#pragma once

#include <cstdint>

#include "executor/communicator.h"

namespace narrowcast::executor {

// What a rank can contribute: the plan that it can load, or why it cannot.
struct PlanReadiness {
  uint64_t hash = 0;  // of the plan, the type and the reduction
  ncast_status status = NCAST_OK;
  char reason[500] = "";  // if status is not OK

  // `own` is the status of the last function that failed on this thread, or OK.
  static PlanReadiness of(uint64_t hash, ncast_status own);
};

// Collective. OK if all ranks can load the same plan. Otherwise every rank gets an error: its own one; or REMOTE_ERROR,
// which names the first rank that cannot load its plan, and the reason; or MISMATCH. Errors of the exchange itself, on
// ranks without an error of their own.
ncast_status agree_on_plan(ncast_comm& comm, const PlanReadiness& own);
// Takes part without a plan. Errors of the exchange.
ncast_status decline_plan(ncast_comm& comm, const char* reason);

}  // namespace narrowcast::executor
