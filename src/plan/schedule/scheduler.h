// Merges groups of a plan without making it slower.
//
// Method: that of ResCCL (SIGCOMM 2025): steps are scheduled one by one, not in stages, and connections that are not
// active at the same time share a thread block. Plans of rings are divided into single connections and steps
// (split.h). List scheduling (list.h) assigns these to the fewest merged groups with which the simulated plan is not
// slower than the given one with a CTA for each group. It also tries instances of the plan, each for a part of every
// chunk, whose shorter steps can be divided more evenly. In other plans whole groups are merged (whole_groups.h).
// Merging adds an order of steps, so the result is proved again.
#pragma once

#include <functional>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// Limits of generated kernels. If they can run the given plan, they can run the result.
struct Kernels {
  std::function<bool(const Plan&)> can_run;  // empty: there are no limits
  uint32_t max_rings = ~0u;                  // between two ranks in one direction
};

struct Options {
  simulate::Options simulation;  // ctas_per_group: of the groups before and after; 0 means 1
  uint32_t max_groups = 0;       // of a rank, even if the plan then takes longer; 0: no limit
  uint32_t max_instances = 2;    // powers of two up to it are tried
  Kernels kernels = {};
};

struct Side {
  uint32_t groups = 0;      // of all ranks
  double microseconds = 0;  // predicted
  double most_idle = 0;     // the largest share of the time in which a group does not work, 0 to 1
};

struct Result {
  Plan plan;
  Side before, after;
};

// `lowered` must be proved. Groups with barriers or loops are not merged, nor are groups of plans with independent
// threads, whose steps depend on the order of threads in their group. Errors: as simulate::simulate(); UNSUPPORTED if
// max_groups cannot be met.
ncast_status schedule(const Plan& lowered, const simulate::Machine& machine, const Options& options, Result* result);

}  // namespace narrowcast::plan::schedule
