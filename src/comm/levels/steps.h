// The steps of a call of two levels: calls of the levels, and work on local memory between them. A long call is cut
// into parts, so that one part moves within groups while another one moves between them.
#pragma once

#include "comm/levels/shape.h"
#include "executor/call.h"
#include "executor/local_work.h"

namespace narrowcast::comm {

// Runs steps, or only observes them.
class StepTaker {
 public:
  virtual ~StepTaker() = default;
  // Of a level. call.comm is not set. slot: where the part has its intermediate values, 0 or 1. Parts that have the
  // same one follow each other.
  virtual ncast_status take(executor::Call call, bool is_between, int slot) = 0;
  // NULL: local work is left out.
  virtual executor::LocalWork* work() = 0;
  // Whether calls between groups are on a side stream of work(), beside those within groups.
  virtual bool overlaps() const = 0;
  // Of intermediate values, area_bytes each, two for each slot.
  virtual void* area(int number) = 0;
  static constexpr int areas = 4;
  static constexpr size_t area_bytes = size_t{32} << 20;
};

// Takes the steps of a collective, but not all_to_all_v, on the rank at this place. The call's arguments have been
// checked. rounds_partial_sums: as in select::Options.
ncast_status take_steps(const LevelShape& shape, bool rounds_partial_sums, StepTaker& taker,
                        const executor::Call& call);

}  // namespace narrowcast::comm
