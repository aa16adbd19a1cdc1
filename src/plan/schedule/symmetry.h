// Symmetries of plans, which spare most of the work of scheduling them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/simulate/machine.h"
#include "plan/simulate/orbits.h"

namespace narrowcast::plan::schedule {

struct Symmetry {
  simulate::Orbits orbits;
  std::vector<std::vector<uint32_t>> groups;  // by rank and group: the corresponding group of the simulated rank

  bool is_trivial() const;
};

// Finds ranks that do the same: exchanges each rank for the one 1, 2, 4 and so on places further on its host, or on a
// later host, and keeps the exchanges that turn the plan into itself. Only what a step waits for matters: neither which
// chunks it accesses, nor the order in which it combines them. plan: the result of split().
Symmetry find_symmetry(const Plan& plan, const simulate::Machine& machine);

}  // namespace narrowcast::plan::schedule
