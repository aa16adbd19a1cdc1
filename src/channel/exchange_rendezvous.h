// A rendezvous of ranks that can exchange bytes already: a communicator of NCCL or MPI, a store.
#pragma once

#include <memory>

#include "channel/rendezvous.h"
#include "channel/world.h"

namespace narrowcast::channel {

// Every rank gives `bytes` bytes and receives those of all in rank order. 0 on success.
using ExchangeFunction = int (*)(void* context, const void* mine, size_t bytes, void* all);

// All ranks call it. Calls `exchange` once, on every rank whatever happens before, to make known where rank 0 listens;
// the result is then a TcpRendezvous. Errors: those of TcpRendezvous::join; REMOTE_ERROR when `exchange` failed or rank
// 0 cannot listen (SYSTEM_ERROR there).
ncast_status join_by_exchange(ExchangeFunction exchange, void* context, int rank, int ranks, Limit limit,
                              std::unique_ptr<Rendezvous>* result);

}  // namespace narrowcast::channel
