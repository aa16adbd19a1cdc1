// Communicators of two levels.
//
// The ranks form groups of the same number of at most 8 ranks, with consecutive numbers: those of a host, if possible.
// Every rank has a communicator with the ranks of its group, and one with the ranks of the same index in the other
// groups, which has two levels in turn if there are more than 8. A call is a sequence of calls of these, so that every
// value goes to each other group once, and every rank's link between groups carries an equal share, as in MSCCL++'s and
// NCCL's hierarchical algorithms. Any other two ranks create a communicator at their first message (pairs.h).
#pragma once

#include "narrowcast/comm.h"

namespace narrowcast::comm {

// Whether create_levels() creates the communicator, if its id has a hub: more GPUs than one communicator can have, or
// the user's choice.
ncast_status wants_levels(int ranks, const ncast_comm_config& config, bool* wants);

// As ncast_comm_create. Creates a communicator of one level if all ranks fit into one but do not form two levels (see
// environment/level_shape.h). Error: UNSUPPORTED if they do not fit.
ncast_status create_levels(ncast_comm** comm, int ranks, const ncast_unique_id& id, int rank,
                           const ncast_comm_config& config);

}  // namespace narrowcast::comm
