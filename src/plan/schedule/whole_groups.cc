#include "plan/schedule/whole_groups.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "status/error.h"

namespace narrowcast::plan::schedule {
namespace {

// The plan with the groups of each rank merged as `assign_rank` says.
template <typename AssignRank>
Plan merged(const Plan& plan, const PlanTimes& times, AssignRank assign_rank) {
  std::vector<Assignment> assignments;
  assignments.reserve(times.size());
  for (const std::vector<GroupTimes>& rank : times) assignments.push_back(assign_rank(rank));
  return merge(plan, times, assignments);
}

Plan merged_into(const Plan& plan, const PlanTimes& times, uint32_t groups) {
  return merged(plan, times, [&](const std::vector<GroupTimes>& rank) { return assign_evenly(rank, groups); });
}

}  // namespace

ncast_status limit_groups(const Plan& plan, const PlanTimes& times, uint32_t max_groups, Candidates* candidates) {
  if (most_groups(plan) <= max_groups) return NCAST_OK;
  // Groups with barriers are not merged, so a smaller number can be needed for the others.
  for (uint32_t groups = max_groups; groups > 0; --groups) {
    Plan found = merged_into(plan, times, groups);
    if (most_groups(found) > max_groups) continue;
    const std::optional<Side> side = candidates->predict(found, std::numeric_limits<double>::infinity());
    if (!side || !candidates->is_valid(found)) continue;
    candidates->begin_with(std::move(found), *side);
    return NCAST_OK;
  }
  return fail(NCAST_UNSUPPORTED, "plan: its groups cannot be merged into %u on every rank", max_groups);
}

void merge_whole_groups(const Plan& plan, const PlanTimes& times, Candidates* candidates) {
  candidates->add(merged(plan, times, assign_apart));
  uint32_t least = 1, most = std::min(most_groups(plan), candidates->max_groups());
  while (least < most) {
    const uint32_t middle = least + (most - least) / 2;
    if (candidates->add(merged_into(plan, times, middle)))
      most = middle;
    else
      least = middle + 1;
  }
}

}  // namespace narrowcast::plan::schedule
