// The outcome of a step that every rank takes by itself and all ranks must know.
#pragma once

#include "bootstrap/rendezvous.h"

namespace narrowcast::bootstrap {

// Travels between ranks.
struct Outcome {
  ncast_status status;
  char sentence[200];  // longer ones are cut

  // With the message of the last error.
  static Outcome of(ncast_status status);
  // The failure, as that of `rank`.
  ncast_status failure_of(int rank) const;
};

// Every rank gives its own, with its sentence as the last error. Returns the failure of the first rank that has one,
// the same on all ranks; or one of the rendezvous.
ncast_status agree_on_outcome(Rendezvous& rendezvous, ncast_status own);

}  // namespace narrowcast::bootstrap
