// The merged groups of a rank during list scheduling, and their ready steps.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/schedule/merge.h"

namespace narrowcast::plan::schedule {

// A ready step. The smallest one begins first.
struct ReadyStep {
  int64_t priority;  // steps with longer remaining paths come first
  uint32_t distance, node;
  uint32_t group;  // of the plan
  auto operator<=>(const ReadyStep&) const = default;
};

class MergedGroups {
 public:
  struct Work {  // of a group of the plan
    double load_us = 0;
    uint32_t steps = 0;
  };

  // work: by group of the plan. count: of merged groups, all of which are free. A group of the plan is assigned to the
  // least loaded free one when its first step begins.
  MergedGroups(std::vector<Work> work, uint32_t count)
      : work_(std::move(work)), assignment_(work_.size(), none), merged_(count) {}

  // Divides the groups of several steps evenly, before any step begins. The others are assigned later.
  void divide_evenly();

  const Assignment& assignment() const { return assignment_; }

  void add(const ReadyStep& step);
  // Occupies a free merged group with its first eligible ready step, and returns the node of this step. Empty if no
  // free merged group has one.
  template <typename IsEligible>
  std::optional<uint32_t> begin_first(IsEligible is_eligible);
  // Frees the merged group after a step of `group`, a group of the plan.
  void end(uint32_t group) { merged_[assignment_[group]].is_free = true; }

 private:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();
  using Ready = std::set<ReadyStep>;
  struct Merged {
    bool is_free = true;
    double load_us = 0;  // of all groups assigned to it
    Ready ready;         // steps of these groups
  };

  std::vector<Work> work_;
  Assignment assignment_;
  std::vector<Merged> merged_;
  Ready unassigned_;  // steps of groups without a merged one
};

template <typename IsEligible>
std::optional<uint32_t> MergedGroups::begin_first(IsEligible is_eligible) {
  Merged* least = nullptr;   // the least loaded free one
  Merged* chosen = nullptr;  // the one with the first step
  Ready::iterator first;
  const auto has_earlier = [&](Ready& ready) {
    const auto found = std::ranges::find_if(ready, is_eligible);
    if (found == ready.end() || (chosen != nullptr && *first < *found)) return false;
    first = found;
    return true;
  };
  for (Merged& merged : merged_) {
    if (!merged.is_free) continue;
    if (least == nullptr || merged.load_us < least->load_us) least = &merged;
    if (has_earlier(merged.ready)) chosen = &merged;
  }
  if (least == nullptr) return std::nullopt;
  if (has_earlier(unassigned_)) {
    least->load_us += work_[first->group].load_us;
    assignment_[first->group] = static_cast<uint32_t>(least - merged_.data());
    first = least->ready.insert(unassigned_.extract(first)).position;
    chosen = least;
  }
  if (chosen == nullptr) return std::nullopt;
  chosen->is_free = false;
  return chosen->ready.extract(first).value().node;
}

}  // namespace narrowcast::plan::schedule
