// NARROWCAST_VERIFY=1: encodes and decodes the values that a rank sends and compares the result with them, and compares
// what arrives with what was sent, bit for bit. Logs a warning for differences. Captured calls are not verified. With a
// lossy codec, only results that must be the same on all ranks are compared.
#pragma once

#include "nccl/calls/launch.h"
#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Called before the call is launched. Waits for its stream.
void verify_codec(Communicator& comm, const EngineCall& engine_call);

// Called on every rank after the launch of a single call, with no group open. Waits for the call. For an all-reduce it
// checks that all ranks have the same result. It does not verify reduce and reduce-scatter, because only one rank has
// each sum, nor sends and receives, because not all ranks make them.
void verify_result(Communicator& comm, const EngineCall& engine_call);

}  // namespace narrowcast::nccl
