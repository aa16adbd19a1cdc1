// The simulation of calls that are divided into micro-batches.
#pragma once

#include "plan/simulate/batches.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

// Whether the plan completes.
bool simulate_batches(const Plan& plan, const Machine& machine, const Options& options, const Batches& batches,
                      Prediction* prediction);

}  // namespace narrowcast::plan::simulate
