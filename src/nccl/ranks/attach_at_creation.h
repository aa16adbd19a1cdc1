// What is done when communicators are made: all ranks are in that call. With NARROWCAST_ATTACH=init they attach.
#pragma once

#include <memory>
#include <vector>

#include "nccl/abi/nccl_types.h"
#include "nccl/ranks/pair_handshake.h"

namespace narrowcast::nccl {

// Whether a communicator that was made with `config` (NULL: none), of those of `parent` (NULL: none), attaches now: if it
// blocks, by what all its ranks have alike. What a call returned may differ between ranks of one that does not.
bool attaches_at_creation(Comm parent, const Config* config);

// Before a communicator is made with an id: where its ranks will meet, if they are two and it blocks; else NULL.
std::unique_ptr<Meeting> meeting_for(int ranks, const UniqueId& id, int rank, const Config* config);

// All that a call or a group of this thread has made, which has none open. Returns when their ranks have attached, or have
// left them to NCCL. NULL is passed over.
void attach_at_creation(const std::vector<Comm>& made);

}  // namespace narrowcast::nccl
