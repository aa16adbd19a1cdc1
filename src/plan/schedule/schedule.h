// Merges the groups of a plan, so that it has fewer of them and takes no longer.
//
// Method: as ResCCL (SIGCOMM 2025) does, steps are scheduled one by one and not in stages, and connections that are not
// active together share a thread block. The plan is simulated with a CTA for each group. The steps of the groups of a
// rank are then assigned to fewer groups: those that are busy at the same time to different ones, the longest first,
// and within a merged group in the order in which the simulation started them. That order respects all dependences.
// Plans of rings are divided into single connections and steps instead (split.h), and these are assigned by list
// scheduling (list.h), by several rules and a few times, each time with the durations that the last schedule had.
// Of ranks that do the same (symmetry.h), one is scheduled, and the others get the same groups.
// Results are simulated again and rejected if they are slower or do not complete; the search keeps the best one that
// passes and that the verifier proves (best.h, search.h). If that still leaves a group idle for long, steps of several
// chunks are divided too, so that phases of the plan overlap. Then this is repeated with two instances of the plan and
// more, each for a part of every chunk. They have more connections with less work each, which can be divided more
// evenly, and shorter pipelines, if they begin one after another. Each time, ranks get other numbers of groups, too,
// for which the schedules before predict that none is idle (counts.h). At last, units exchange groups (improve.h), and
// all ranks get the same number of groups.
#pragma once

#include <functional>

#include "plan/ir.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// What generated kernels can run. If they can run the given plan, they can run the result, too.
struct Kernels {
  std::function<bool(const Plan&)> can_run;  // empty: there are no limits
  uint32_t max_rings = ~0u;                  // between two ranks in one direction
};

struct Options {
  simulate::Options simulation;  // ctas_per_group: of the groups before and after; 0 means 1
  uint32_t max_groups = 0;       // of a rank, even if the plan then takes longer; 0: no limit
  uint32_t max_instances = 16;   // that a plan of rings is replicated into
  Kernels kernels = {};
};

struct Side {
  uint32_t groups = 0;      // of all ranks
  double microseconds = 0;  // predicted
  double most_idle = 0;     // the largest share of the time in which a group does not work, 0 to 1
  double least_idle = 0;    // what most_idle would be at least if every rank had one group, in the same time
};

struct Result {
  Plan plan;
  Side before, after;
  uint32_t fewest_groups = 0;  // of plans that were found and take no longer, even if groups are idle for long
  uint32_t least_groups = 0;   // that have the time for all steps in the time of the given plan
};

// `lowered` must be proved. Groups with barriers or loops are left as they are, and so are plans with independent
// threads, whose steps need their group's order of threads. Errors: as simulate::simulate(); UNSUPPORTED if max_groups
// cannot be met.
ncast_status schedule(const Plan& lowered, const simulate::Machine& machine, const Options& options, Result* result);

}  // namespace narrowcast::plan::schedule
