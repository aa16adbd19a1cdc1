// The properties `undefined` and `result`: what each chunk contains. A value is a set of contributions, each a chunk of
// the input of a rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/verify/flat_plan.h"

namespace narrowcast::plan::verify {

struct Values {
  Finding finding;
  uint32_t roundings = 0, inexact_encodings = 0;
  bool rank_order = true, same_everywhere = true;
  std::vector<uint32_t> completing;  // flat steps: Report::completing
  bool can_average = true;
};

// Executes one call in the given order, which must be possible and without races.
Values compute_values(const FlatPlan& flat_plan, std::span<const uint32_t> order, const MemoryMap& map);

}  // namespace narrowcast::plan::verify
