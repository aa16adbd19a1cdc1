// Which calls are taken, and with which codec: by what all ranks know, and nothing else.
#pragma once

#include <string>

#include "nccl/abi/call.h"
#include "nccl/policy/cost_prediction.h"
#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

struct Decision {
  bool take;
  ncast_codec codec;
  const char* why_not;  // a constant sentence, or NULL where it is taken
};

// What is known of a communicator.
struct CommunicatorTraits {
  int ranks;
  std::string name;  // by its configuration; empty: none
};

// A send and its receive get the same.
Decision decide(const Settings& settings, const Call& call, const CommunicatorTraits& comm, const Predictor& predictor);

}  // namespace narrowcast::nccl
