// NARROWCAST_VERIFY=1: what is sent is encoded, decoded and compared, and what arrives is compared with what was sent, bit
// for bit, where it is what was sent. Calls that are captured are let through; a difference is warned of.
#pragma once

#include "nccl/calls/launch.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Before the call is launched. Waits for its stream.
void verify_codec(const Communicator& comm, const TakenCall& taken);

// After it was launched, with no group open, on every rank. Waits for it. Of an all-reduce it is compared whether all ranks
// have the same. Nothing of a reduce and a reduce-scatter, whose sums only one rank has, nor of sends and receives, which not
// all ranks make.
void verify_arrival(Communicator& comm, const Call& call);

}  // namespace narrowcast::nccl
