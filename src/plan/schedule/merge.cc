#include "plan/schedule/merge.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "plan/schedule/awaited.h"

namespace narrowcast::plan::schedule {
namespace {

bool can_merge(const Plan& plan, const Group& group) {
  return plan.threads == Threads::synchronized && !group.steps.empty() &&
         std::ranges::none_of(group.steps, [](const Step& step) {
           return step.kind == StepKind::barrier || step.kind == StepKind::loop;
         });
}

// A time in which a group is busy.
struct Window {
  double begin, end;
};

// The time in which two groups are both busy. The windows of each are sorted and disjoint.
double overlap(const std::vector<Window>& a, const std::vector<Window>& b) {
  double total = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    total += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    ++(a[i].end < b[j].end ? i : j);
  }
  return total;
}

std::vector<Window> windows_of(const GroupTimes& group) {
  std::vector<Window> windows;
  for (size_t i = 0; i < group.begin.size(); ++i)
    if (group.end[i] > group.begin[i]) windows.push_back({group.begin[i], group.end[i]});
  return windows;
}

// Adds windows to sorted ones, joining overlapping windows.
void add(const std::vector<Window>& added, std::vector<Window>* windows) {
  windows->insert(windows->end(), added.begin(), added.end());
  std::ranges::sort(*windows, {}, &Window::begin);
  std::vector<Window> joined;
  for (const Window& window : *windows) {
    if (!joined.empty() && window.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, window.end);
    else
      joined.push_back(window);
  }
  *windows = std::move(joined);
}

double first_begin(const GroupTimes& group) { return group.begin.empty() ? 0 : group.begin.front(); }

// An assignment under construction. Groups that cannot merge get the first numbers; callers place the others in the
// following bins.
struct Numbering {
  explicit Numbering(const std::vector<GroupTimes>& groups) : assignment(groups.size()) {
    for (uint32_t i = 0; i < groups.size(); ++i) {
      if (groups[i].can_merge)
        order.push_back(i);
      else
        assignment[i] = fixed++;
    }
  }
  void place(uint32_t group, size_t bin) { assignment[group] = fixed + static_cast<uint32_t>(bin); }

  Assignment assignment;
  uint32_t fixed = 0;           // number of groups that cannot merge
  std::vector<uint32_t> order;  // the groups that can, in the order in which callers place them
};

// By merged group of a rank: its steps, as ids in the given plan, in the order of their times.
using Orders = std::vector<std::vector<StepId>>;

Orders orders_of(const Rank& rank, const std::vector<GroupTimes>& times, const Assignment& assignment) {
  Orders orders(*std::ranges::max_element(assignment) + 1);
  for (uint32_t group = 0; group < rank.groups.size(); ++group)
    for (uint32_t step = 0; step < rank.groups[group].steps.size(); ++step)
      orders[assignment[group]].push_back({group, step});
  // The order of steps in a group is kept, because their times do not decrease.
  const auto by_time = [&](const StepId& id) { return std::tuple(times[id.group].begin[id.step], id.group, id.step); };
  for (std::vector<StepId>& order : orders) std::ranges::sort(order, {}, by_time);
  return orders;
}

// By group and step of the given plan: the merged group and the index in it.
using Places = std::vector<std::vector<StepId>>;

Places places_of(const Rank& rank, const Orders& orders) {
  Places places;
  places.reserve(rank.groups.size());
  for (const Group& group : rank.groups) places.emplace_back(group.steps.size());
  for (uint32_t merged = 0; merged < orders.size(); ++merged)
    for (uint32_t place = 0; place < orders[merged].size(); ++place) {
      const StepId id = orders[merged][place];
      places[id.group][id.step] = {merged, place};
    }
  return places;
}

Rank merge_rank(const Rank& rank, const std::vector<GroupTimes>& times, const Assignment& assignment) {
  Rank result;
  result.scratch_chunks = rank.scratch_chunks;
  if (assignment.empty()) return result;
  for (const std::vector<uint32_t>& groups : rank.barriers) {
    std::vector<uint32_t>& members = result.barriers.emplace_back();
    for (uint32_t group : groups) members.push_back(assignment[group]);
  }
  const Orders orders = orders_of(rank, times, assignment);
  const Places places = places_of(rank, orders);
  const auto place_of = [&](const StepId& id) { return places[id.group][id.step]; };
  for (uint32_t merged = 0; merged < orders.size(); ++merged) {
    Group& group = result.groups.emplace_back();
    for (const StepId& id : orders[merged]) {
      Step step = rank.groups[id.group].steps[id.step];
      step.after = last_of_each_group(std::views::transform(step.after, place_of), merged);
      group.steps.push_back(std::move(step));
    }
  }
  return result;
}

}  // namespace

PlanTimes times_of(const Plan& plan, const simulate::Prediction& prediction) {
  PlanTimes times;
  for (const Rank& rank : plan.ranks) {
    std::vector<GroupTimes>& groups = times.emplace_back();
    for (const Group& group : rank.groups) {
      const std::vector<double> zeros(group.steps.size());
      groups.push_back({can_merge(plan, group), 0, zeros, zeros});
    }
  }
  for (const simulate::Activity& activity : prediction.groups)
    times[activity.rank][activity.group].busy_us = activity.busy_us;
  for (const simulate::Interval& interval : prediction.timeline) {
    if (interval.batch != 0) continue;
    GroupTimes& group = times[interval.rank][interval.group];
    group.begin[interval.step] = interval.begin;
    group.end[interval.step] = interval.end;
  }
  return times;
}

Assignment assign_apart(const std::vector<GroupTimes>& groups) {
  Numbering numbering(groups);
  std::ranges::sort(numbering.order, {}, [&](uint32_t i) { return std::pair(first_begin(groups[i]), i); });
  std::vector<std::vector<Window>> bins;
  for (uint32_t i : numbering.order) {
    const std::vector<Window> windows = windows_of(groups[i]);
    const auto bin = std::ranges::find_if(bins, [&](const auto& taken) { return overlap(taken, windows) == 0; });
    numbering.place(i, static_cast<size_t>(bin - bins.begin()));
    add(windows, bin == bins.end() ? &bins.emplace_back() : &*bin);
  }
  return numbering.assignment;
}

Assignment assign_evenly(const std::vector<GroupTimes>& groups, uint32_t merged) {
  Numbering numbering(groups);
  std::ranges::sort(numbering.order, {}, [&](uint32_t i) { return std::pair(-groups[i].busy_us, i); });
  struct Bin {
    std::vector<Window> windows;
    double busy_us = 0;
  };
  const uint32_t wanted = merged > numbering.fixed ? merged - numbering.fixed : 1;
  std::vector<Bin> bins(std::min<size_t>(wanted, numbering.order.size()));
  for (uint32_t i : numbering.order) {
    const std::vector<Window> windows = windows_of(groups[i]);
    // Groups that are busy together delay each other, which costs more than uneven loads.
    const auto cost = [&](const Bin& bin) { return std::pair(overlap(bin.windows, windows), bin.busy_us); };
    const auto best = std::ranges::min_element(bins, {}, cost);
    numbering.place(i, static_cast<size_t>(best - bins.begin()));
    add(windows, &best->windows);
    best->busy_us += groups[i].busy_us;
  }
  return numbering.assignment;
}

Plan merge(const Plan& plan, const PlanTimes& times, const std::vector<Assignment>& assignments) {
  Plan result = plan;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    result.ranks[rank] = merge_rank(plan.ranks[rank], times[rank], assignments[rank]);
  return result;
}

}  // namespace narrowcast::plan::schedule
