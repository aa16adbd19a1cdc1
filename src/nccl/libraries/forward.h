// Calls into the real NCCL.
#pragma once

#include "nccl/abi/call.h"

namespace narrowcast::nccl {

// Passes the call to the real NCCL.
int forward(const Call& call);

// While an object exists, this thread is inside the real NCCL. Calls that NCCL then makes to its own public functions
// are passed through.
class InsideNccl {
 public:
  InsideNccl();
  ~InsideNccl();
  InsideNccl(const InsideNccl&) = delete;
  InsideNccl& operator=(const InsideNccl&) = delete;
  static bool active();
};

}  // namespace narrowcast::nccl
