// The division of a simulated call into micro-batches.
#pragma once

#include <cstdint>

#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

struct Batches {
  uint32_t count = 1;
  double chunk_bytes = 0;  // of a chunk, in each
  uint32_t workers = 1;    // concurrent micro-batches of a group
  bool has_turns = false;  // a group executes them in turns, as kernels that reduce values in slots do
};

// Divides the whole call into at most options.max_batches micro-batches. Large plans get fewer: their own chunks
// already form pipelines.
Batches batches_of(const Plan& plan, const Machine& machine, const Options& options);

// Number of micro-batches at kernel granularity. Not necessarily an integer, and possibly more than can be simulated.
double full_batches_of(const Plan& plan, const Machine& machine, const Options& options);

}  // namespace narrowcast::plan::simulate
