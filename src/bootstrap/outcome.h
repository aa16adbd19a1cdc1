// Shares the result of a step that each rank performs on its own, so that all ranks continue or all fail.
#pragma once

#include "bootstrap/rendezvous.h"

namespace narrowcast::bootstrap {

// Copied as bytes between ranks.
struct Outcome {
  ncast_status status;
  char message[200];  // longer messages are truncated

  // Takes the message from ncast_last_error() if status is not OK.
  static Outcome of(ncast_status status);
  // Fails with this status and a message that names `rank`.
  ncast_status failure_of(int rank) const;
};

// Every rank passes its own status; the message is that of ncast_last_error(). Returns, on all ranks, the failure of
// the lowest rank that failed, or NCAST_OK. Further errors: those of all_gather, on ranks that have not failed
// themselves.
ncast_status agree_on_outcome(Rendezvous& rendezvous, ncast_status own);

}  // namespace narrowcast::bootstrap
