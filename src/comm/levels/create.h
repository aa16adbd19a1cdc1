// Communicators of two levels.
//
// The ranks are the same number on every host, with consecutive numbers. Every rank has a communicator with the ranks
// of its host, and one with the ranks of the same index on the other hosts, of at most 8 ranks each. A call is a
// sequence of calls of these, so that every value goes to each other host once, and every rank's link between hosts
// carries an equal share, as in MSCCL++'s and NCCL's hierarchical algorithms.
#pragma once

#include "narrowcast/comm.h"

namespace narrowcast::comm {

// Whether create_levels() creates the communicator: more GPUs than one communicator can have, or the user's choice.
// config has passed checked_config().
ncast_status wants_levels(int ranks, const ncast_comm_config& config, bool* wants);

// As ncast_comm_create. Creates a communicator of one level if all ranks fit into one but do not form two levels: one
// host, one rank on each host, or not the same number on every host. Error: UNSUPPORTED if they do not fit.
ncast_status create_levels(ncast_comm** comm, int ranks, const ncast_unique_id& id, int rank,
                           const ncast_comm_config& config);

}  // namespace narrowcast::comm
