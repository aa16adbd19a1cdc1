#include "plan/verify/shared_semaphores.h"

#include <algorithm>
#include <map>
#include <utility>

namespace narrowcast::plan::verify {

namespace {

// Vector clocks of the groups of one rank, from the order within the rank alone.
class RankOrder {
 public:
  RankOrder(const FlatPlan& flat_plan, int rank)
      : flat_plan_(flat_plan),
        rank_(rank),
        first_(flat_plan.rank_groups[static_cast<size_t>(rank)]),
        count_(flat_plan.rank_groups[static_cast<size_t>(rank) + 1] - first_),
        clocks_(count_) {
    for (uint32_t group = 0; group < count_; ++group) {
      const FlatGroup& flat = flat_plan.groups[first_ + group];
      next_.push_back(flat.begin);
      for (uint32_t step = flat.begin; step < flat.end; ++step)
        for (const StepId& id : flat_plan.steps[step].step->after) completed_[flat_plan.end_of(rank, id) - 1];
    }
  }

  uint32_t group_of(const FlatStep& step) const { return step.group - first_; }
  const Row& clock(uint32_t group) const { return clocks_[group]; }

  void begin(uint32_t group) {
    for (const StepId& id : flat_plan_.steps[next_[group]].step->after)
      clocks_[group].join(completed_[flat_plan_.end_of(rank_, id) - 1]);
  }
  void finish(uint32_t group) {
    const uint32_t flat = next_[group]++;
    clocks_[group].raise(group, flat + 1, count_);
    if (const auto found = completed_.find(flat); found != completed_.end()) found->second = clocks_[group];
  }
  void pass_barrier(const Step& step) {
    Row all;
    const std::vector<uint32_t>& members =
        flat_plan_.barriers[flat_plan_.rank_barriers[static_cast<size_t>(rank_)] + step.barrier];
    for (const uint32_t member : members) {
      begin(member - first_);
      all.join(clocks_[member - first_]);
    }
    for (const uint32_t member : members) {
      clocks_[member - first_] = all;
      finish(member - first_);
    }
  }

 private:
  const FlatPlan& flat_plan_;
  const int rank_;
  const uint32_t first_, count_;
  std::vector<Row> clocks_;  // of each group
  std::vector<uint32_t> next_;
  std::unordered_map<uint32_t, Row> completed_;  // clocks of the steps that others come after
};

}  // namespace

SharedSemaphores::SharedSemaphores(const FlatPlan& flat_plan, std::span<const uint32_t> order) {
  std::vector<uint8_t> ranks(flat_plan.plan->ranks.size(), 0);
  for (uint32_t channel = 0; channel < flat_plan.channels.size(); ++channel) {
    if (flat_plan.channels[channel].waiters.size() > 1)
      ranks[static_cast<size_t>(flat_plan.plan->channels[channel].to)] = 1;
    if (flat_plan.channels[channel].signallers.size() > 1)
      ranks[static_cast<size_t>(flat_plan.plan->channels[channel].from)] = 1;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank] != 0) add_rank(flat_plan, order, static_cast<int>(rank));
}

void SharedSemaphores::add_rank(const FlatPlan& flat_plan, std::span<const uint32_t> order, int rank) {
  RankOrder ranked(flat_plan, rank);
  std::map<uint32_t, std::vector<Event>> waits, signals;  // by channel
  spend(order.size());
  for (const uint32_t flat : order) {
    const FlatStep& step = flat_plan.steps[flat];
    if (flat_plan.rank_of(step) != rank) continue;
    if (step.step->kind == StepKind::barrier) {
      ranked.pass_barrier(*step.step);
      continue;
    }
    const uint32_t group = ranked.group_of(step);
    ranked.begin(group);
    spend(step.step->channels.size());
    for (size_t position = 0; position < step.step->channels.size(); ++position) {
      const uint32_t channel = step.step->channels[position];
      if (step.step->kind == StepKind::wait && flat_plan.channels[channel].waiters.size() > 1)
        waits[channel].push_back({flat, position, group, ranked.clock(group)});
      if (step.step->kind == StepKind::signal && flat_plan.channels[channel].signallers.size() > 1)
        signals[channel].push_back({flat, position, group, ranked.clock(group)});
    }
    ranked.finish(group);
  }
  for (const auto& [channel, list] : waits) add_waits(list);
  for (const auto& [channel, list] : signals) add_signals(channel, list);
}

bool SharedSemaphores::precedes(const Event& a, const Event& b) {
  if (a.group == b.group) return std::pair(a.flat, a.position) < std::pair(b.flat, b.position);
  return b.clock[a.group] > a.flat;
}

void SharedSemaphores::add_waits(const std::vector<Event>& waits) {
  spend(waits.size() * waits.size());
  for (const Event& wait : waits) {
    SignalsNeeded needed{1, 1};
    for (const Event& other : waits) {
      if (&other == &wait) continue;
      needed.least += precedes(other, wait) ? 1 : 0;
      needed.most += precedes(wait, other) ? 0 : 1;
    }
    needed_[key(wait.flat, wait.position)] = needed;
  }
}

void SharedSemaphores::add_signals(uint32_t channel, const std::vector<Event>& signals) {
  Signals& added = signals_[channel];
  spend(2 * signals.size() * signals.size());
  memory_.grow(signals.size() * signals.size() / 8);
  added.follows.resize(signals.size() * signals.size());
  added.others_before.assign(signals.size(), static_cast<uint32_t>(signals.size()) - 1);
  for (size_t i = 0; i < signals.size(); ++i) {
    signal_indices_[key(signals[i].flat, signals[i].position)] = static_cast<uint32_t>(i);
    for (size_t j = 0; j < signals.size(); ++j)
      if (j != i && precedes(signals[j], signals[i])) {
        added.follows[i * signals.size() + j] = true;
        --added.others_before[j];
      }
  }
}

const SignalsNeeded* SharedSemaphores::needed(uint32_t flat, size_t position) const {
  if (needed_.empty()) return nullptr;
  const auto found = needed_.find(key(flat, position));
  return found == needed_.end() ? nullptr : &found->second;
}

uint32_t SharedSemaphores::signal_index(uint32_t flat, size_t position) const {
  if (signal_indices_.empty()) return none;
  const auto found = signal_indices_.find(key(flat, position));
  return found == signal_indices_.end() ? none : found->second;
}

}  // namespace narrowcast::plan::verify
