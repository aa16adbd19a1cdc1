// The checks of a call's arguments, before anything of it is done. Sentences name the function, argument and value.
#pragma once

#include <span>

#include "executor/call.h"

namespace narrowcast::comm {

// All but whether the communicator is one.
ncast_status check_arguments(const executor::Call& call);

// Sends to oneself find their receives here: in order, of the same count and dtype. Errors: INVALID_ARGUMENT, MISMATCH.
ncast_status check_sends_to_oneself(std::span<const executor::Call> calls);

// The defaults, with the settings given by the caller (may be NULL; may be of an older or newer version).
ncast_status read_config(const ncast_comm_config* given, ncast_comm_config* config);
// All that can be refused of it before a rank waits for others.
ncast_status check_config(int ranks, int rank, const ncast_comm_config& config);

}  // namespace narrowcast::comm
