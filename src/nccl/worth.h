// Whether a call is faster here than in NCCL: the one place that answers.
#pragma once

#include <cstdint>

#include "narrowcast/types.h"
#include "nccl/operations.h"

namespace narrowcast::nccl {

// What every rank knows of a call. bytes: of the largest piece that one rank sends another; for all_reduce of all values.
struct CallShape {
  Operation operation;
  ncast_dtype dtype;
  uint64_t bytes;
  int ranks;
};

// NULL: it is. Else why not, as a constant sentence.
const char* why_not_worth_taking(const CallShape& shape, ncast_codec codec);

}  // namespace narrowcast::nccl
