// Into how many micro-batches a simulated call is divided.
#pragma once

#include <cstdint>

#include "plan/simulate/simulate.h"

namespace narrowcast::plan::simulate {

// Large plans are divided into fewer micro-batches: their own chunks already make pipelines.
uint32_t batches_of(const Plan& plan, const Machine& machine, const Options& options);

}  // namespace narrowcast::plan::simulate
