// Into how many micro-batches a simulated call is divided.
#pragma once

#include <cstdint>

#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

struct Batches {
  uint32_t count = 1;
  double chunk_bytes = 0;  // of a chunk, in each
  uint32_t workers = 1;    // how many of them a group executes at a time
  bool has_turns = false;  // a group executes them in turns, as kernels that reduce values in slots do
};

// The whole call, in at most options.max_batches micro-batches. Large plans are divided into fewer: their own chunks
// already make pipelines.
Batches batches_of(const Plan& plan, const Machine& machine, const Options& options);

// The micro-batches of a call whose micro-batches are as long as those of kernels. Not whole, and perhaps more than can
// be simulated.
double full_batches_of(const Plan& plan, const Machine& machine, const Options& options);

}  // namespace narrowcast::plan::simulate
