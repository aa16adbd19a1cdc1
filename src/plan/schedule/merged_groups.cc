#include "plan/schedule/merged_groups.h"

#include <algorithm>

namespace narrowcast::plan::schedule {

void MergedGroups::divide_evenly() {
  std::vector<uint32_t> order;  // the largest groups first, each to the merged group with the least work
  for (uint32_t group = 0; group < work_.size(); ++group)
    if (work_[group].steps > 1) order.push_back(group);
  std::ranges::sort(order, {}, [&](uint32_t group) { return std::pair(-work_[group].load_us, group); });
  for (uint32_t group : order) {
    const auto least = std::ranges::min_element(merged_, {}, &Merged::load_us);
    least->load_us += work_[group].load_us;
    assignment_[group] = static_cast<uint32_t>(least - merged_.begin());
  }
}

void MergedGroups::add(const ReadyStep& step) {
  const uint32_t assigned = assignment_[step.group];
  (assigned == none ? unassigned_ : merged_[assigned].ready).insert(step);
}

}  // namespace narrowcast::plan::schedule
