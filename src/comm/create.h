// The creation of a communicator from arguments of the C API.
#pragma once

#include "narrowcast/comm.h"

namespace narrowcast::comm {

// The caller's settings, with defaults, after the checks that do not need other ranks.
ncast_status checked_config(int ranks, int rank, const ncast_comm_config* given, ncast_comm_config* config);

// Implements ncast_get_unique_id and ncast_get_local_unique_id.
ncast_status make_id(bool is_local, ncast_unique_id* id);

// Implements ncast_comm_create.
ncast_status create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                    const ncast_comm_config* given_config);

}  // namespace narrowcast::comm
