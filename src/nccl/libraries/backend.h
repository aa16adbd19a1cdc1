// The engine backend that a build of the drop-in uses.
#pragma once

#include "narrowcast/comm.h"

namespace narrowcast::nccl {

struct Backend {
  ncast_backend id;
  bool calibrates;  // unless a setting says otherwise
};

// Defined once per library: cuda_backend.cc in libnarrowcast_nccl.so, tests/nccl/libraries/host_backend.cc in the
// library that the tests preload on machines without GPUs.
extern const Backend backend;

}  // namespace narrowcast::nccl
