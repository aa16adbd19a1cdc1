#include "plan/schedule/search.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>
#include <utility>

#include "plan/schedule/merge.h"
#include "plan/schedule/step_graph.h"

namespace narrowcast::plan::schedule {
namespace {

using Priority = StepGraph::Priority;
using Rules = StepGraph::Rules;

// Numbers of groups that are tried, and how many in a row that are not better end the search: fewer in few instances,
// if groups are so idle that only more instances can help.
constexpr int most_trials = 32, patience = 12, little_patience = 1;
constexpr double too_idle = 2 * most_idle;

// Numbers of groups that are tried for all ranks.
constexpr uint32_t most_even = 8;

// Between the first steps of staggered replicas, as shares of the time that one needs. If groups are almost busy
// enough with the first intervals, the others can make the difference: without them, a tree would remain idle for
// 22.3%.
constexpr double first_intervals[] = {0.2, 0.3}, other_intervals[] = {0.1, 0.15, 0.25, 0.35, 0.4};

// Few instances spare full links (Rules::full_link). The transfers of more instances do not coincide, as these are
// staggered, and their order must not change.
constexpr double full_link = 1;

}  // namespace

ListSearch::ListSearch(std::shared_ptr<const Divided> divided, const simulate::Prediction& alone, uint32_t replicas,
                       CountSearch* counts, Nearest* nearest, Best* best)
    : divided_(std::move(divided)), replicas_(replicas), counts_(counts), nearest_(nearest), best_(best) {
  for (const simulate::Activity& activity : alone.groups) {
    busy_us_.resize(std::max<size_t>(busy_us_.size(), activity.rank + 1));
    busy_us_[activity.rank] += activity.busy_us;
  }
}

void ListSearch::bisect() {
  const std::vector<Rules> rules = {{.priority = Priority::longest_path, .full_link = full_link},
                                    {.priority = Priority::shortest_path, .full_link = full_link}};
  std::vector<uint32_t> last;
  Outcome tried;
  std::optional<Trial> found;
  // Groups that work alone share their links with fewer others than those of `alone`, so shares above 1 are possible.
  double reached = 0.25, missed = 8;
  while (missed > reached * 1.1) {
    const double share = std::sqrt(reached * missed);
    std::vector<uint32_t> groups;
    for (const double busy_us : busy_us_) {
      const double needed = std::ceil(busy_us / (best_->limit_us() * share));
      groups.push_back(static_cast<uint32_t>(std::clamp<double>(needed, 1, best_->max_groups())));
    }
    if (groups != last) tried = try_counts(groups, rules);
    last = std::move(groups);
    if (tried.is_found) found = tried.trial;
    (tried.is_found ? reached : missed) = share;
  }
  if (!found) found = std::move(tried.trial);
  if (found) counts_->add(std::move(*found));
}

std::vector<Rules> ListSearch::rules() const {
  const bool is_few = replicas_ <= few_instances;
  std::vector<Rules> rules;
  if (is_few)
    for (const Priority priority : {Priority::longest_path, Priority::shortest_path, Priority::earliest_chunk})
      rules.push_back({.priority = priority, .full_link = full_link});
  if (replicas_ > 1)
    for (const double interval : first_intervals)
      rules.push_back({.priority = Priority::staggered, .interval = interval, .full_link = is_few ? full_link : 0});
  return rules;
}

Trial ListSearch::even_trial(uint32_t each) const {
  const std::vector<uint32_t> groups(busy_us_.size(), each);
  return divided_->trial_of(groups, divided_->graph().schedule(groups, rules().back()));
}

void ListSearch::even() {
  constexpr double excess = 1.05;  // over the limit, in the first schedule: other rules can make shorter ones
  std::optional<Trial> nearest;
  for (uint32_t each = 1; each <= std::min(most_even, best_->max_groups()); ++each) {
    Trial trial = even_trial(each);
    if (trial.microseconds > best_->limit_us() * excess || trial.most_idle > almost_busy) continue;
    if (!nearest || trial.most_idle < nearest->most_idle) nearest = std::move(trial);
  }
  if (nearest) try_counts(nearest->groups, rules());
}

void ListSearch::vary() {
  const bool is_few = replicas_ <= few_instances;
  const std::vector<Rules> rules = this->rules();
  std::vector<Rules> others;
  for (const double interval : other_intervals)
    others.push_back({.priority = Priority::staggered, .interval = interval});
  // The work of the ranks depends on how many groups share links. These trials show it for few and for many.
  if (replicas_ > 1)
    for (uint32_t each = 1; each <= std::min(most_even, best_->max_groups()); each *= 2) counts_->add(even_trial(each));
  const auto is_short = [&](const Trial& trial) { return trial.microseconds <= best_->limit_us(); };
  double least_idle = 1;
  counts_->begin_again();
  for (int i = 0, last_better = 0; i < most_trials; ++i) {
    const bool is_hopeless = is_few && is_idle(best_->side()) && least_idle > too_idle;
    if (i - last_better > (is_hopeless ? little_patience : patience)) break;
    if (!best_->is_open() || scheduled_steps_ > most_scheduled_steps) break;
    const std::optional<std::vector<uint32_t>> groups = counts_->next();
    if (!groups) break;
    std::optional<Trial> trial = try_counts(*groups, rules).trial;
    if (!trial) continue;
    if (!is_few && is_idle(best_->side()) && is_short(*trial) && trial->most_idle < almost_busy) {
      std::optional<Trial> other = try_counts(*groups, others).trial;
      if (other && is_short(*other) && other->most_idle < trial->most_idle) trial = std::move(other);
    }
    if (is_short(*trial) && trial->most_idle < least_idle) {
      least_idle = trial->most_idle;
      last_better = i;
    }
    if (!closest_ || distance(*trial) < distance(*closest_)) closest_ = trial;
    counts_->add(std::move(*trial));
  }
}

double ListSearch::distance(const Trial& trial) const {
  constexpr double excess_weight = 2;
  return trial.most_idle + excess_weight * std::max(0.0, trial.microseconds / best_->limit_us() - 1);
}

void ListSearch::climb(Trial from) {
  const std::vector<Rules> rules = this->rules();
  const auto is_alike = [&](size_t one, size_t other) {
    constexpr double difference = 0.05;  // of work
    return from.groups[one] == from.groups[other] &&
           std::abs(busy_us_[one] - busy_us_[other]) <= difference * busy_us_[one];
  };
  std::set<std::vector<uint32_t>> tried;
  scheduled_steps_ = 0;
  // Tries to change the ranks like this one. Returns whether that comes closer.
  const auto change = [&](size_t rank, int by) {
    std::vector<uint32_t> groups = from.groups;
    for (size_t other = 0; other < groups.size(); ++other)
      if (is_alike(rank, other)) groups[other] += by;
    if (groups[rank] == 0 || groups[rank] > best_->max_groups() || !tried.insert(groups).second) return false;
    std::optional<Trial> trial = try_counts(groups, rules).trial;
    if (!trial || distance(*trial) >= distance(from)) return false;
    from = std::move(*trial);
    return true;
  };
  for (bool is_changed = true; std::exchange(is_changed, false);)
    for (size_t rank = 0; rank < busy_us_.size() && !is_changed; ++rank) {
      const auto is_like_rank = [&](size_t other) { return is_alike(rank, other); };
      if (std::ranges::any_of(std::views::iota(size_t{0}, rank), is_like_rank)) continue;  // done
      if (!is_idle(best_->side()) || scheduled_steps_ > most_scheduled_steps) return;
      is_changed = change(rank, 1) || change(rank, -1);
    }
}

// Schedules the plan for so many groups of each rank by all rules. How long steps take depends on what runs beside
// them, so each schedule is made with the durations of the one before, in some rounds: with two rounds, 4 of 87 plans
// would need more groups. More instances take long, and gain nothing in a third one.
ListSearch::Outcome ListSearch::try_counts(const std::vector<uint32_t>& groups, const std::vector<Rules>& all_rules) {
  const int rounds = replicas_ > few_instances ? 2 : 3;
  const double limit_us = best_->limit_us();
  Outcome outcome;
  if (best_->is_one_batch() && divided_->graph().least_us(groups) > limit_us) return outcome;
  const auto rank_of = [&](const Trial& one) {
    return std::pair(one.microseconds > limit_us ? one.microseconds : 0, one.most_idle);
  };
  for (const bool evenly : {false, true})
    for (Rules rules : all_rules) {
      rules.divides_evenly = evenly;
      StepGraph graph = divided_->graph();
      for (int round = 0; round < rounds; ++round) {
        const StepGraph::Schedule schedule = graph.schedule(groups, rules);
        scheduled_steps_ += schedule.durations.size();
        Trial trial = divided_->trial_of(groups, schedule);
        if (best_->is_one_batch() && trial.microseconds <= limit_us) {
          outcome.is_found = true;
          best_->add_groups(trial.used);
          if (trial.most_idle < nearest_->trial.most_idle) *nearest_ = {divided_, graph, rules, trial};
        }
        graph.set_durations(schedule.durations);
        if (!best_->is_one_batch() || is_promising(trial, *best_))
          outcome.is_found |= consider(*divided_, schedule, best_);
        if (!outcome.trial || rank_of(trial) < rank_of(*outcome.trial)) outcome.trial = std::move(trial);
      }
    }
  return outcome;
}

// Those of one micro-batch take as long as in the simulation, but for rounding.
bool is_promising(const Trial& trial, const Best& best) {
  constexpr double inaccuracy = 1e-3;
  const Side side{trial.used, trial.microseconds, trial.most_idle - inaccuracy, 0};
  return trial.microseconds <= best.limit_us() * (1 + inaccuracy) && best.is_better(side);
}

// All ranks are simulated only if the plan seems to be better.
bool consider(const Divided& divided, const StepGraph::Schedule& schedule, Best* best) {
  if (divided.is_symmetric()) {
    const Plan part = merge(divided.simulated(), schedule.order, schedule.assignments);
    const std::optional<Side> side = best->predict(part, best->limit_us(), &divided.orbits());
    if (!side || side->microseconds > best->limit_us()) return false;
    if (!best->is_better(*side)) return true;
  }
  return best->consider(divided.merged(schedule));
}

}  // namespace narrowcast::plan::schedule
