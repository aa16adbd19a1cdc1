// Checks of a call's arguments before it starts. Messages name the function, the argument and the value.
#pragma once

#include <span>

#include "executor/call.h"

namespace narrowcast::comm {

// Everything except whether the communicator is valid.
ncast_status check_arguments(const executor::Call& call);

// Matches sends to the own rank with their receives: in order, of the same count and dtype. Errors: INVALID_ARGUMENT,
// MISMATCH.
ncast_status check_sends_to_oneself(std::span<const executor::Call> calls);

// The defaults, with the settings given by the caller (may be NULL; may be of an older or newer version).
ncast_status read_config(const ncast_comm_config* given, ncast_comm_config* config);
// Checks everything that can be checked before a rank waits for others.
ncast_status check_config(int ranks, int rank, const ncast_comm_config& config);

}  // namespace narrowcast::comm
