#include "plan/schedule/improve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace narrowcast::plan::schedule {
namespace {

// So many steps are scheduled in the descent that follows a round of annealing.
constexpr uint64_t descent_steps = 8'000'000;
// Plans of which fewer schedules can be made are not annealed. Of small plans, these are the most.
constexpr uint64_t least_changes = 1000, most_changes = 4000;
constexpr int most_rounds = 8;
// If any, of transfers that are not short of links (Rules::full_link): calls become shorter than with the first one.
constexpr double annealed_full_link = 0.5;
// Costs count idle time from a little below the goal, and that of the idlest groups most.
constexpr double idle_goal = most_idle - 0.01, idle_power = 4;
constexpr double cost_of_time = 2;           // of the share of the limit that a schedule takes longer than it
constexpr double first_temperature = 0.001;  // in units of cost
// How a change is chosen.
constexpr double least_weight = 0.2;       // of ranks, next to the idle time of their groups
constexpr double lengthening_share = 0.2;  // changes of Rules::lengthening; the others move units to other groups
constexpr double most_lengthening = 0.08;  // at once
constexpr double idlest_share = 0.4;       // moves to the idlest group of a rank
constexpr double exchange_share = 0.85;    // moves for which another unit takes the place

double idle_share(double busy_us, const StepGraph::Schedule& schedule) { return 1 - busy_us / schedule.microseconds; }

class Walk {
 public:
  Walk(const Nearest& nearest, StepGraph::Rules rules, Best* best)
      : divided_(*nearest.divided), graph_(*nearest.graph), groups_(nearest.trial.groups), best_(best) {
    rules.assignments = graph_.schedule(groups_, rules).assignments;
    rules.lengthening.clear();
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      const size_t units = rules.assignments[rank].size();
      rules.lengthening.emplace_back(units);
      if (units > 0) ranks_.push_back(rank);
    }
    first_ = std::move(rules);
    least_idle_ = first_;
  }

  // Whether a rank has several groups.
  bool has_choice() const {
    return std::ranges::any_of(first_.assignments, [](const Assignment& units) {
      return std::ranges::adjacent_find(units, std::not_equal_to{}) != units.end();
    });
  }
  // From the first schedule.
  void anneal(uint64_t steps) {
    begin(first_);
    const auto cost_of = [&](const StepGraph::Schedule& schedule, double) { return cost(schedule); };
    run(steps, first_temperature, cost_of);
  }
  // From the schedule whose idlest group is the least idle. It becomes less idle, or not more.
  void descend(uint64_t steps) {
    begin(least_idle_);
    const auto cost_of = [&](const StepGraph::Schedule& schedule, double most_idle) {
      return is_short(schedule) ? most_idle : std::numeric_limits<double>::infinity();
    };
    run(steps, 0, cost_of);
  }

 private:
  void begin(const StepGraph::Rules& rules) {
    rules_ = rules;
    schedule_ = graph_.schedule(groups_, rules_);
  }

  // Changes the rules for so many scheduled steps. A change remains if the cost does not increase, or by about as much
  // as the temperature, which falls to 0.
  template <typename CostOf>
  void run(uint64_t most_steps, double temperature, CostOf cost_of) {
    double cost = cost_of(schedule_, divided_.trial_of(groups_, schedule_).most_idle);
    most_steps = std::min(most_steps, graph_.steps() * most_changes);
    for (uint64_t steps = 0; steps < most_steps && is_idle(best_->side());) {
      const size_t rank = pick_rank();
      Assignment units = rules_.assignments[rank];
      std::vector<double> lengthening = rules_.lengthening[rank];
      if (!change(rank)) continue;
      StepGraph::Schedule schedule = graph_.schedule(groups_, rules_);
      steps += schedule.durations.size();
      const Trial trial = divided_.trial_of(groups_, schedule);
      if (is_short(schedule) && trial.most_idle < least_most_idle_) {
        least_most_idle_ = trial.most_idle;
        least_idle_ = rules_;
      }
      const double left = 1 - static_cast<double>(steps) / static_cast<double>(most_steps);
      const double next = cost_of(schedule, trial.most_idle);
      if (next > cost - temperature * std::max(0.0, left) * std::log(share())) {
        rules_.assignments[rank] = std::move(units);
        rules_.lengthening[rank] = std::move(lengthening);
        continue;
      }
      cost = next;
      schedule_ = std::move(schedule);
      if (is_promising(trial, *best_)) consider(divided_, schedule_, best_);
    }
  }

  bool is_short(const StepGraph::Schedule& schedule) const { return schedule.microseconds <= best_->limit_us(); }

  double cost(const StepGraph::Schedule& schedule) const {
    double sum = 0, used = 0;
    for (const std::vector<double>& rank : schedule.busy_us)
      for (double busy_us : rank) {
        if (busy_us == 0) continue;
        ++used;
        sum += std::pow(std::max(0.0, idle_share(busy_us, schedule) - idle_goal), idle_power);
      }
    const double excess = std::max(0.0, schedule.microseconds / best_->limit_us() - 1);
    return std::pow(sum / used, 1 / idle_power) + cost_of_time * excess;
  }

  size_t pick_rank() {
    std::vector<double> weights;  // of the ranks that are scheduled
    for (size_t rank : ranks_) {
      double& weight = weights.emplace_back(least_weight);
      for (double busy_us : schedule_.busy_us[rank])
        if (busy_us > 0) weight += std::max(0.0, idle_share(busy_us, schedule_) - idle_goal);
    }
    double left = share() * std::accumulate(weights.begin(), weights.end(), 0.0);
    size_t i = 0;
    while (i + 1 < weights.size() && left >= weights[i]) left -= weights[i++];
    return ranks_[i];
  }

  // Changes what the rules say of a rank. Returns false if that changed nothing.
  bool change(size_t rank) {
    Assignment& units = rules_.assignments[rank];
    if (share() < lengthening_share) {
      rules_.lengthening[rank][below(units.size())] += (2 * share() - 1) * most_lengthening;
      return true;
    }
    const std::vector<double>& busy_us = schedule_.busy_us[rank];
    const auto time_of = [&](uint32_t group) { return busy_us[group]; };
    const uint32_t group = share() < idlest_share ? std::ranges::min(units, {}, time_of) : units[below(units.size())];
    uint32_t& one = units[below(units.size())];
    if (one == group) return false;
    if (share() < exchange_share) {
      uint32_t& other = units[below(units.size())];
      if (other != group) return false;
      other = one;
    }
    one = group;
    return true;
  }

  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  double share() { return (random_() + 0.5) / 0x1p32; }

  const Divided& divided_;
  const StepGraph& graph_;
  const std::vector<uint32_t>& groups_;
  std::vector<size_t> ranks_;  // that are scheduled
  Best* best_;
  std::mt19937 random_{1};  // NOLINT(bugprone-random-generator-seed): the same plan gets the same schedule
  StepGraph::Rules first_, rules_, least_idle_;
  StepGraph::Schedule schedule_;  // by rules_
  double least_most_idle_ = 1;    // of schedules that are not slower than the limit: by least_idle_
};

}  // namespace

void improve(const Nearest& nearest, Best* best, uint64_t round_steps) {
  if (!nearest.graph || nearest.trial.most_idle > almost_busy) return;
  StepGraph::Rules rules = nearest.rules;
  if (nearest.graph->steps() * least_changes > round_steps) {
    Walk(nearest, std::move(rules), best).descend(most_scheduled_steps);
    return;
  }
  if (rules.full_link > 0) rules.full_link = annealed_full_link;
  Walk walk(nearest, std::move(rules), best);
  if (!walk.has_choice()) return;
  for (int round = 0; round < most_rounds && is_idle(best->side()); ++round) {
    walk.anneal(round_steps);
    walk.descend(descent_steps);
  }
}

}  // namespace narrowcast::plan::schedule
