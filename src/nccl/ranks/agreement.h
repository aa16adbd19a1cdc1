// How the ranks of a communicator decide whether Narrowcast may handle its calls.
#pragma once

#include "nccl/ranks/communicator.h"

namespace narrowcast::nccl {

// Both functions are collective: every rank calls them before the same call of the communicator, and they wait for all
// ranks. The requirements of exchange_bytes() apply.

// Compares releases, settings and hosts, once per communicator. If any rank cannot use Narrowcast, every rank forwards
// all calls from then on.
void agree(Communicator& comm);

// Whether `own` is true on every rank. False if the ranks could not exchange it.
bool all_ranks(Communicator& comm, bool own);

}  // namespace narrowcast::nccl
