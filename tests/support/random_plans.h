// Random plans, correct by construction in most cases: the verifier decides.
#pragma once

#include <cstdint>

#include "plan/ir.h"

namespace narrowcast::plan::verify::testing {

// A collective of 2 to 4 ranks. Its values take random paths through random groups: as messages, puts and gets, by copy
// engines, packets in scratch and switches, some encoded with `window`, some in loops. Steps wait for each other by
// `after`, barriers, semaphores between groups, and signals, relaxed where nothing else is announced.
Plan random_plan(uint32_t seed);

}  // namespace narrowcast::plan::verify::testing
