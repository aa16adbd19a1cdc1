// The creation of a communicator from arguments of the C API.
#pragma once

#include "bootstrap/tcp_address.h"
#include "narrowcast/comm.h"

namespace narrowcast::comm {

// The caller's settings, with defaults, after the checks that do not need other ranks.
ncast_status checked_config(int ranks, int rank, const ncast_comm_config* given, ncast_comm_config* config);

// Makes an id whose hub can be reached from `reach`. Ranks of the backend `host` with the same own_host() share memory;
// spans_hosts: there may be others. host: own_host(), or 0 if it need not be checked that ranks have it.
ncast_status make_id(bootstrap::Reach reach, bool spans_hosts, uint64_t host, ncast_unique_id* id);

// Implements ncast_comm_create.
ncast_status create(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                    const ncast_comm_config* given_config);
// As create(), but without levels.
ncast_status create_one_level(ncast_comm** comm, int ranks, const ncast_unique_id* id, int rank,
                              const ncast_comm_config* given_config);

}  // namespace narrowcast::comm
