// NARROWCAST_ATTACH=init: the ranks of a communicator attach in the call that creates it, which all of them make.
#pragma once

#include <memory>
#include <vector>

#include "nccl/abi/nccl_types.h"
#include "nccl/ranks/communicator.h"
#include "nccl/ranks/pair_handshake.h"

namespace narrowcast::nccl {

// Whether a communicator attaches when it is created. config, parent: the arguments of its creation; NULL: none. True
// only if all ranks know that the communicator blocks, because results of nonblocking calls may differ between ranks.
bool attaches_at_creation(Comm parent, const Config* config);

// Called before a communicator is created with an id. Returns a handshake if the communicator has two ranks and blocks;
// otherwise NULL.
std::unique_ptr<PairHandshake> handshake_for(int ranks, const UniqueId& id, int rank, const Config* config);

// Attaches communicators that this thread has created, alone or in a group that has ended. Returns when their ranks
// have attached or have left them to NCCL. NULL handles are ignored.
void attach_at_creation(const std::vector<Comm>& created);

// Calls a collective function for each communicator, each in its own thread, because ranks in one process may wait for
// each other.
void for_each_in_threads(const std::vector<std::shared_ptr<Communicator>>& comms, void (*function)(Communicator&));

}  // namespace narrowcast::nccl
