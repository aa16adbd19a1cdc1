// What came of something that each rank does for itself, where all of them have to know.
#pragma once

#include "bootstrap/rendezvous.h"

namespace narrowcast::bootstrap {

// Travels between ranks.
struct Outcome {
  ncast_status status;
  char sentence[200];  // longer ones are cut

  // With the last error's sentence.
  static Outcome of(ncast_status status);
  // The failure that it is, of this rank's.
  ncast_status failure_of(int rank) const;
};

// Every rank gives its own, with its sentence as the last error. Returns the failure of the first rank that has one,
// the same on all ranks; or one of the rendezvous.
ncast_status agree_on_outcome(Rendezvous& rendezvous, ncast_status own);

}  // namespace narrowcast::bootstrap
