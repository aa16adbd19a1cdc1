// Every single change of a plan that a careless author or pass could make.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/ir.h"
#include "support/sanitized.h"

namespace narrowcast::plan::verify::testing {

struct Mutant {
  std::string change;
  Plan plan;
};

// Drops a step, a dependence, a source or a destination; a chunk; a signal together with a wait. Moves an operand by a
// chunk or to another buffer or channel; exchanges two operands or two steps. Relaxes signals and waits. Drops one copy
// of the scratch. Depths are not changed.
std::vector<Mutant> mutants_of(const Plan& plan);

// Tests take one of so many mutants.
inline constexpr size_t sample = tests::sanitized ? 7 : 1;

}  // namespace narrowcast::plan::verify::testing
