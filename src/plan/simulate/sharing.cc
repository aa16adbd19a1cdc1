#include "plan/simulate/sharing.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace narrowcast::plan::simulate {

Sharing::Sharing(const Programs& programs, std::vector<Run>& runs, Agenda& events)
    : programs_(programs),
      runs_(runs),
      events_(events),
      active_(programs.capacities.size()),
      left_(programs.capacities),
      sharing_(programs.capacities.size()) {}

void Sharing::begin(uint32_t index, double now) {
  if (last_share_.size() < runs_.size()) last_share_.resize(runs_.size());
  const std::vector<Load>& used = loads(runs_[index]);
  for (const Load& load : used) active_[load.resource].push_back(index);
  share(used, now);
}

void Sharing::end(uint32_t index, double now) {
  Run& run = runs_[index];
  const std::vector<Load>& used = loads(run);
  give_back(run);
  for (const Load& load : used) {
    std::vector<uint32_t>& active = active_[load.resource];
    *std::ranges::find(active, index) = active.back();
    active.pop_back();
  }
  run.rate = 0;
  share(used, now);
}

void Sharing::share(const std::vector<Load>& used, double now) {
  members_.clear();
  ++shares_;
  for (const Load& load : used)
    for (uint32_t index : active_[load.resource]) {
      if (std::exchange(last_share_[index], shares_) == shares_) continue;
      const Run& run = runs_[index];
      members_.push_back({0, run.program, run.batches, run.worker, run.task, index});
    }
  std::ranges::sort(members_, {}, [](const Member& one) {
    return std::tuple(one.program, one.batches, one.worker, one.task, one.index);
  });
  for (size_t i = 0; i < members_.size(); ++i) {
    if (i != 0 && members_[i - 1].program == members_[i].program)
      members_[i].before = members_[i - 1].before + (runs_[members_[i].index].phase == Phase::transferring ? 1 : 0);
    stop(members_[i].index, now);
  }
  std::ranges::sort(members_, {}, [](const Member& one) { return std::tuple(one.before, one.index); });
  for (auto first = members_.begin(); first != members_.end();) {
    const auto last =
        std::find_if(first, members_.end(), [&](const Member& one) { return one.before != first->before; });
    share_equally(std::span(first, last), now);
    first = last;
  }
}

// Gives runs equal shares of what is left.
void Sharing::share_equally(std::span<const Member> members, double now) {
  if (std::ranges::all_of(members, [&](const Member& one) { return gets_nothing(runs_[one.index]); })) {
    for (const Member& one : members) events_.remove(one.index);
    return;
  }
  for (const Member& one : members)
    for (const Load& load : loads(runs_[one.index])) sharing_[load.resource] += load.times;
  for (const Member& member : members) {
    const uint32_t index = member.index;
    Run& run = runs_[index];
    double rate = never;
    for (const Load& load : loads(run)) {
      if (load.amount > 0 && rate > 0) rate = std::min(rate, rate_of(load, sharing_[load.resource], rate));
      sharing_[load.resource] -= load.times;
    }
    if (rate == never) {
      events_.set(now, index);
      continue;
    }
    run.rate = rate;
    if (rate == 0) {
      events_.remove(index);
      continue;
    }
    take(run);
    events_.set(now + run.left / rate, index);
  }
}

// Takes back what a run has, until share() decides again.
void Sharing::stop(uint32_t index, double now) {
  Run& run = runs_[index];
  give_back(run);
  run.left = std::max(0.0, run.left - run.rate * (now - run.updated));
  run.updated = now;
  run.rate = 0;
}

// A run gives what it has of its resources back, or takes it.
void Sharing::give_back(const Run& run) {
  if (run.rate != 0) change_left(run, run.rate);
}
void Sharing::take(const Run& run) { change_left(run, -run.rate); }
void Sharing::change_left(const Run& run, double rate) {
  for (const Load& load : loads(run)) {
    double left = left_[load.resource];
    for (uint32_t i = 0; i < load.times; ++i) left += rate * load.amount;
    left_[load.resource] = left;
  }
}

bool Sharing::is_used_up(const Load& load) const {
  return left_[load.resource] <= 1e-9 * programs_.capacities[load.resource];
}
bool Sharing::gets_nothing(const Run& run) const {
  return std::ranges::any_of(loads(run), [&](const Load& load) { return load.amount > 0 && is_used_up(load); });
}

// What one of so many runs gets of a resource, or `most` if that is less. Most of the time of a simulation is spent
// here, and the product shows without a division that most loads do not limit a run.
double Sharing::rate_of(const Load& load, uint32_t sharing, double most) const {
  if (is_used_up(load)) return 0;
  const double free = left_[load.resource];
  if (free > most * sharing * load.amount * (1 + 1e-9)) return most;
  return free / sharing / load.amount;
}

}  // namespace narrowcast::plan::simulate
