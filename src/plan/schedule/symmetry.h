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

// Finds ranks that can be exchanged for each other: with the next rank (or the one after the next, and so on), of the
// same host or of the next one. Which chunks a step accesses does not matter,
// only what it waits for, and neither does the order in which it combines them.
// plan: one that can_split() and has been split.
Symmetry find_symmetry(const Plan& plan, const simulate::Machine& machine);

}  // namespace narrowcast::plan::schedule
