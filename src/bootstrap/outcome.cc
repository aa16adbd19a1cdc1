#include "bootstrap/outcome.h"

#include <cstdio>
#include <vector>

#include "status/error.h"

namespace narrowcast::bootstrap {

Outcome Outcome::of(ncast_status status) {
  Outcome outcome{status, {}};
  if (status != NCAST_OK) std::snprintf(outcome.message, sizeof outcome.message, "%s", ncast_last_error());
  return outcome;
}

ncast_status Outcome::failure_of(int rank) const {
  return fail(status, "rank %d: %.*s", rank, static_cast<int>(sizeof message), message);
}

ncast_status agree_on_outcome(Rendezvous& rendezvous, ncast_status own) {
  const Outcome mine = Outcome::of(own);
  std::vector<Outcome> all(static_cast<size_t>(rendezvous.ranks()));
  if (ncast_status status = rendezvous.all_gather(&mine, sizeof mine, all.data()))
    return own == NCAST_OK ? status : mine.failure_of(rendezvous.rank());
  for (int rank = 0; rank < rendezvous.ranks(); ++rank) {
    const Outcome& outcome = all[static_cast<size_t>(rank)];
    if (outcome.status != NCAST_OK) return outcome.failure_of(rank);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::bootstrap
