// What a rank's failure means to the other ranks.
#pragma once

#include "status/error.h"

namespace narrowcast::bootstrap {

// The status that the other ranks get after one rank failed with `status`. An abort, a mismatch and a timeout concern
// all ranks alike; every other failure is that of a peer.
inline ncast_status status_at_peers(ncast_status status) {
  switch (status) {
    case NCAST_ABORTED:
    case NCAST_MISMATCH:
    case NCAST_TIMEOUT: return status;
    default: return NCAST_REMOTE_ERROR;
  }
}

// Fails as the other ranks do after `rank` failed.
inline ncast_status fail_of_rank(ncast_status status, int rank, const char* message) {
  if (status == NCAST_ABORTED) return fail(NCAST_ABORTED, "rank %d aborted the communicator", rank);
  return fail(status_at_peers(status), "rank %d reports: %s", rank, message);
}

}  // namespace narrowcast::bootstrap
