// The steps of a call of two levels.
#pragma once

#include "comm/levels/communicator.h"

namespace narrowcast::comm {

// Runs or enqueues a collective, but not all_to_all_v. Its arguments have been checked.
ncast_status run_steps(Levels& comm, const executor::Call& call);

}  // namespace narrowcast::comm
