// NARROWCAST_VERIFY=1: encodes, decodes and compares what a rank sends, and compares what arrives with what was sent,
// bit for bit. Logs a warning if they differ. Captured calls are not verified. With a codec that is not exact, only
// results that must be the same on all ranks are compared.
#pragma once

#include "nccl/calls/launch.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Called before the call is launched. Waits for its stream.
void verify_codec(const Communicator& comm, const EngineCall& engine_call);

// Called after a single call was launched, on every rank, with no group open. Waits for the call. For an all-reduce it
// checks that all ranks have the same result. It does not check reduce and reduce-scatter, whose sums only one rank
// has, nor sends and receives, which not all ranks make.
void verify_result(Communicator& comm, const EngineCall& engine_call);

}  // namespace narrowcast::nccl
