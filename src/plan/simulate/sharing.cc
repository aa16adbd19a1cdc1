#include "plan/simulate/sharing.h"

#include <algorithm>
#include <utility>

namespace narrowcast::plan::simulate {
namespace {

constexpr double rounding = 1e-9;  // relative error of shares

}  // namespace

Sharing::Sharing(const TaskLists& task_lists, std::vector<Run>& runs, Agenda& events)
    : task_lists_(task_lists),
      runs_(runs),
      events_(events),
      active_(task_lists.capacities.size()),
      left_(task_lists.capacities),
      is_changed_(task_lists.capacities.size()),
      levels_(1),
      sharing_(task_lists.capacities.size()),
      shares_(task_lists.capacities.size()) {}

void Sharing::begin(uint32_t index, double now) {
  Run& run = runs_[index];
  run.left = 1;
  run.rate = 0;
  run.updated = now;
  if (index >= loads_.size()) loads_.resize(runs_.size());
  loads_[index] = loads_of(task_lists_, run);
  for (const Load& load : loads(index)) active_[load.resource].push_back(index);
  mark_changed(loads(index));
}

void Sharing::end(uint32_t index) {
  for (const Load& load : loads(index)) {
    std::vector<uint32_t>& active = active_[load.resource];
    *std::ranges::find(active, index) = active.back();
    active.pop_back();
  }
  mark_changed(loads(index));
}

void Sharing::mark_changed(std::span<const Load> used) {
  for (const Load& load : used)
    if (!std::exchange(is_changed_[load.resource], true)) changed_.push_back(load.resource);
}

bool Sharing::share(double now) {
  if (changed_.empty()) return false;
  collect();
  for (std::vector<uint32_t>& level : levels_) {
    if (!level.empty()) fill(&level, now);
    level.clear();
  }
  for (uint32_t resource : changed_) is_changed_[resource] = false;
  changed_.clear();
  return true;
}

// Collects the users of changed resources, and releases their shares.
void Sharing::collect() {
  ++calls_;
  last_call_.resize(runs_.size());
  transfers_.clear();
  for (uint32_t resource : changed_)
    for (uint32_t index : active_[resource]) {
      if (std::exchange(last_call_[index], calls_) == calls_) continue;
      const Run& run = runs_[index];
      if (run.rate != 0) take(index, -run.rate);
      if (run.phase == Phase::working)
        levels_[0].push_back(index);
      else
        transfers_.push_back({run.task_list, run.posted, run.turns, run.worker, run.task, index});
    }
  // All shares have been released, except for rounding errors.
  for (uint32_t resource : changed_) left_[resource] = task_lists_.capacities[resource];
  std::ranges::sort(transfers_);
  size_t level = 0;
  for (size_t i = 0; i < transfers_.size(); ++i) {
    if (i == 0 || transfers_[i - 1].task_list != transfers_[i].task_list)
      level = 0;
    else if (follows(i))
      ++level;
    if (level == levels_.size()) levels_.emplace_back();
    levels_[level].push_back(transfers_[i].index);
  }
}

// Whether a transfer waits for the previous one of the same task list instead of sharing links with it.
bool Sharing::follows(size_t number) const {
  const Transfer &before = transfers_[number - 1], &one = transfers_[number];
  return !task_lists_.first_blocks_share_links || !is_first(before) || !is_first(one) || before.turns != one.turns;
}

bool Sharing::is_first(const Transfer& transfer) const {
  const Run& run = runs_[transfer.index];
  return run.turn == task_lists_.all[run.task_list].tasks[run.task].stage;
}

// Divides the remaining capacity among these runs: the resource with the smallest shares limits its users, and what
// they leave of other resources is divided among the rest.
void Sharing::fill(std::vector<uint32_t>* open, double now) {
  std::erase_if(*open, [&](uint32_t index) {
    const bool gets_nothing = std::ranges::any_of(loads(index), [&](const Load& load) { return is_used_up(load); });
    if (gets_nothing) set_rate(index, 0, now);
    return gets_nothing;
  });
  filled_.clear();
  for (uint32_t index : *open)
    for (const Load& load : loads(index)) {
      if (sharing_[load.resource] == 0) filled_.push_back(load.resource);
      sharing_[load.resource] += load.times;
    }
  while (!open->empty()) {
    double smallest = never;
    for (uint32_t resource : filled_) {
      if (sharing_[resource] == 0) continue;
      shares_[resource] = left_[resource] / sharing_[resource];
      smallest = std::min(smallest, shares_[resource]);
    }
    std::erase_if(*open, [&](uint32_t index) {
      double share = never, rate = never;
      for (const Load& load : loads(index)) {
        share = std::min(share, shares_[load.resource]);
        rate = std::min(rate, shares_[load.resource] / load.amount);
      }
      if (share > smallest * (1 + rounding)) return false;
      for (const Load& load : loads(index)) sharing_[load.resource] -= load.times;
      take(index, rate);
      set_rate(index, rate, now);
      return true;
    });
  }
}

void Sharing::set_rate(uint32_t index, double rate, double now) {
  Run& run = runs_[index];
  if (run.rate == rate) return;
  run.left = std::max(0.0, run.left - run.rate * (now - run.updated));
  run.updated = now;
  run.rate = rate;
  if (rate == 0)
    events_.remove(index);
  else
    events_.set(now + run.left / rate, index);
}

// A negative rate releases.
void Sharing::take(uint32_t index, double rate) {
  for (const Load& load : loads(index)) left_[load.resource] -= rate * load.amount * load.times;
}

bool Sharing::is_used_up(const Load& load) const {
  return left_[load.resource] <= rounding * task_lists_.capacities[load.resource];
}

}  // namespace narrowcast::plan::simulate
