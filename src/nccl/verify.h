// NARROWCAST_VERIFY=1: what is sent is encoded, decoded and compared, and what arrives is compared with what was sent, bit
// for bit. Calls that are captured are let through; a difference is warned of.
#pragma once

#include "nccl/communicator.h"
#include "nccl/take.h"

namespace narrowcast::nccl {

// Before the call is launched. Waits for its stream.
void verify_codec(const Communicator& comm, const TakenCall& taken);

// After it was launched, with no group open, on every rank. Waits for it. Not for sends and receives, which not all ranks
// make.
void verify_arrival(Communicator& comm, const Call& call);

}  // namespace narrowcast::nccl
