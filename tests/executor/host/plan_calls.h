// Calls of plans on the host backend, compared with what their operations define.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::testing {

// While it exists, groups are delayed at random, and yield after every step.
class RandomInterleaving {
 public:
  explicit RandomInterleaving(uint32_t seed);
  ~RandomInterleaving();
};

// Loads the plan on all ranks, in threads, and makes calls of many types, reductions and numbers of values, in place or
// not, as the plan permits. Ends the process if a result is wrong. scratch_bytes: of the communicator; 0: the default.
void check_plan(const plan::Plan& plan, const std::vector<size_t>& counts, size_t scratch_bytes = 0);
// The same for one type and reduction, which `seed` chooses; each call twice.
void check_plan_once(const plan::Plan& plan, const std::vector<size_t>& counts, size_t scratch_bytes, uint32_t seed);

}  // namespace narrowcast::testing
