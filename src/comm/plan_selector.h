// The user's choice between plans.
#pragma once

#include "executor/communicator.h"

namespace narrowcast::comm {

// Gives a new communicator the selector of ncast_set_plan_selector(), if there is one.
void use_default_selector(const ncast_comm& comm);

}  // namespace narrowcast::comm
