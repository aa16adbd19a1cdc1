#include "channel/exchange_rendezvous.h"

#include <cstring>
#include <vector>

#include "channel/shared_memory.h"
#include "channel/tcp_rendezvous.h"
#include "status/error.h"

namespace narrowcast::channel {
namespace {

// Of a hub whose ranks never come because the exchange failed. A day, as an exchange waits for the slowest rank.
constexpr Limit unused_limit = {24 * 3600};

// Of rank 0; the others give zeros.
struct Invitation {
  uint32_t status;
  TcpAddress address;
  WorldId secret;
  char sentence[256];
};

ncast_status invite(Invitation* invitation) {
  if (ncast_status status = random_bytes(&invitation->secret, sizeof invitation->secret)) return status;
  return open_rendezvous(invitation->secret, unused_limit, &invitation->address);
}

}  // namespace

ncast_status join_by_exchange(ExchangeFunction exchange, void* context, int rank, int ranks, Limit limit,
                              std::unique_ptr<Rendezvous>* result) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return fail(NCAST_INVALID_ARGUMENT, "rank %d of %d", rank, ranks);
  Invitation mine = {};
  if (rank == 0) {
    mine.status = invite(&mine);
    if (mine.status != NCAST_OK) std::strncpy(mine.sentence, ncast_last_error(), sizeof mine.sentence - 1);
  }
  std::vector<Invitation> all(static_cast<size_t>(ranks));
  if (const int error = exchange(context, &mine, sizeof mine, all.data()); error != 0) {
    return fail(NCAST_REMOTE_ERROR, "rank %d: the caller's all-gather returned %d", rank, error);
  }
  Invitation& first = all[0];
  first.sentence[sizeof first.sentence - 1] = 0;
  if (first.status != NCAST_OK) {
    return rank == 0 ? fail(static_cast<ncast_status>(mine.status), "%s", mine.sentence)
                     : fail(NCAST_REMOTE_ERROR, "rank 0 reports: %s", first.sentence);
  }
  return TcpRendezvous::join(first.address, first.secret, rank, ranks, limit, result);
}

}  // namespace narrowcast::channel
