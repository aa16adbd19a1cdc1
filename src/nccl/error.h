// How the engine's failures reach programs that know NCCL's.
#pragma once

#include "narrowcast/types.h"
#include "nccl/nccl_abi.h"

namespace narrowcast::nccl {

Result result_of(ncast_status status);

// Keeps the engine's last sentence for ncclGetLastError, warns of it, and returns the result.
int report_engine_error(ncast_status status, const char* where);

// The sentence of the last failure here, or NULL when NCCL has failed since. Valid for the thread until its next call.
const char* last_engine_error();
void forget_engine_error();

}  // namespace narrowcast::nccl
