// The property `race`: vector clocks over several successive calls.
//
// Actors access memory: groups; the copy engine behind a port, one for each group and channel that uses it; and the
// user of a rank, who reads and writes input and output between calls. An access has an epoch of its actor. A later
// access by another actor is ordered after it if that actor's clock has reached the epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/verify/flat_plan.h"
#include "plan/verify/shared_semaphores.h"

namespace narrowcast::plan::verify {

// Looks for two accesses to a chunk, one of them a write, that are not ordered.
//   order: one in which a call can run (Synchronization::order).
//   calls: how many calls follow each other. They are ordered on each rank, but not between ranks.
Finding find_race(const FlatPlan& flat_plan, std::span<const uint32_t> order, const SharedSemaphores& shared,
                  uint32_t calls);

}  // namespace narrowcast::plan::verify
