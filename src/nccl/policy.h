// Which calls are taken, and with which codec: by what all ranks know, and nothing else.
#pragma once

#include "nccl/call.h"
#include "nccl/settings.h"

namespace narrowcast::nccl {

struct Decision {
  bool take;
  ncast_codec codec;
  const char* why_not;  // a constant sentence, or NULL where it is taken
};

// A send and its receive get the same.
Decision decide(const Settings& settings, const Call& call, int ranks);

}  // namespace narrowcast::nccl
