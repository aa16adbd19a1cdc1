#include "plan/schedule/search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/schedule/divided.h"
#include "plan/schedule/list.h"
#include "plan/schedule/merge.h"
#include "plan/schedule/split.h"
#include "plan/verify/verify.h"
#include "status/error.h"

namespace narrowcast::plan::schedule {
namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

// Of plans in which no group is idle for long, compared with others.
constexpr double groups_for_less_idleness = 1.25;

bool is_proved(const Plan& plan) { return verify::verify(plan).verdict == verify::Verdict::proved; }

Side side_of(const simulate::Prediction& prediction) {
  Side side;
  side.microseconds = prediction.microseconds;
  const auto idle = [&](double busy_us) {
    return prediction.microseconds > 0 ? 1 - busy_us / prediction.microseconds : 0;
  };
  std::map<uint32_t, double> work_us;  // by rank
  for (const simulate::Activity& activity : prediction.groups) {
    ++side.groups;
    side.most_idle = std::max(side.most_idle, idle(activity.busy_us));
    work_us[activity.rank] += activity.busy_us;
  }
  for (const auto& [rank, busy_us] : work_us) side.least_idle = std::max(side.least_idle, idle(busy_us));
  return side;
}

class Search {
 public:
  // replicas: how many the plan consists of.
  Search(const Plan& plan, const simulate::Machine& machine, const Options& options, uint32_t replicas = 1)
      : plan_(plan), machine_(machine), options_(options), replicas_(replicas) {
    options_.simulation.records_timeline = true;
    if (options_.simulation.ctas_per_group == 0) options_.simulation.ctas_per_group = 1;
  }

  ncast_status run(Result* result) {
    if (ncast_status status = prepare()) return status;
    simulate::Prediction prediction;
    if (ncast_status status = simulate::simulate(plan_, machine_, options_.simulation, &prediction)) return status;
    before_ = side_of(prediction);
    Result best{plan_, before_, before_, before_.groups, before_.groups};
    if (options_.max_groups != 0) {
      if (ncast_status status = meet_limit(&best)) return status;
    }
    best.least_groups = best.fewest_groups;
    if (divided_ && is_one_batch())
      best.least_groups = std::min(best.least_groups, divided_->least_groups(best.after.microseconds));
    shrink(&best);
    *result = std::move(best);
    return NCAST_OK;
  }

  // Searches further for plans that are not slower than `limit_us` and better than `best`, a plan of the same
  // operation.
  ncast_status improve(double limit_us, CountSearch* counts, Result* best) {
    if (ncast_status status = prepare()) return status;
    before_ = best->before;
    if (has_many_replicas()) {
      add_even_trials(counts);
      spread(limit_us, many_replicas, counts, best);
    } else {
      shrink_divided(limit_us, counts, best);
      spread(limit_us, few_replicas, counts, best);
    }
    return NCAST_OK;
  }

  // Of the ranks that are simulated.
  uint64_t simulated_steps() const { return divided_ ? steps_of(divided_->simulated()) : 0; }

 private:
  // Simulates the plan and the one with divided groups.
  ncast_status prepare() {
    simulate::Prediction prediction;
    if (ncast_status status = simulate::simulate(plan_, machine_, options_.simulation, &prediction)) return status;
    times_ = times_of(plan_, prediction);
    options_.simulation.records_timeline = false;
    if (std::optional<Plan> plan = split(plan_, prediction, false))
      divided_.emplace(std::move(*plan), machine_, options_.simulation, replicas_);
    return NCAST_OK;
  }

  bool is_one_batch() const { return options_.simulation.max_batches == 1; }

  uint32_t group_limit() const { return options_.max_groups != 0 ? options_.max_groups : most_groups(plan_); }

  // The plan with at most `groups(rank)` groups on every rank. Empty if it does not complete in limit_us.
  template <typename Groups>
  std::optional<Result> with(Groups groups, double limit_us) const {
    return merged([&](size_t rank) { return assign(times_[rank], std::max<uint32_t>(1, groups(rank))); }, limit_us);
  }

  // The plan with the groups of each rank merged as `assignment(rank)` says. Empty if it does not complete in limit_us.
  template <typename Assign>
  std::optional<Result> merged(Assign assignment, double limit_us) const {
    std::vector<Assignment> assignments;
    assignments.reserve(plan_.ranks.size());
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) assignments.push_back(assignment(rank));
    return simulated(merge(plan_, times_, assignments), nullptr, limit_us);
  }

  using Priority = StepGraph::Priority;
  using Rules = StepGraph::Rules;
  static constexpr int few_rounds = 3;

  // The plan with the divided groups in so many groups of each rank, in the order of list schedules. How long steps
  // take depends on what runs beside them, so each schedule is made with the times of the one before, in some rounds.
  // trial: gets the schedule with the least idle groups of those that are not slower than limit_us, or the shortest.
  bool list(const std::vector<uint32_t>& groups, double limit_us, const std::vector<Rules>& all_rules, int rounds,
            std::optional<Trial>* trial, Result* best) const {
    if (!divided_ || (is_one_batch() && divided_->graph().least_us(groups) > limit_us)) return false;
    bool any = false;
    for (const bool evenly : {false, true})
      for (Rules rules : all_rules) {
        rules.divides_evenly = evenly;
        StepGraph graph = divided_->graph();
        for (int round = 0; round < rounds; ++round) {
          const StepGraph::Schedule found = graph.schedule(groups, rules);
          graph.set_durations(found.durations);
          Trial predicted = divided_->trial_of(groups, found);
          const bool seems_better = !is_one_batch() || is_promising(predicted, limit_us, *best);
          if (is_one_batch() && predicted.microseconds <= limit_us) {
            any = true;
            best->fewest_groups = std::min(best->fewest_groups, predicted.used);
          }
          if (trial != nullptr) take_less_idle(limit_us, std::move(predicted), trial);
          if (seems_better) any |= take_divided(*divided_, limit_us, found, best);
        }
      }
    return any;
  }

  // List schedules of one micro-batch take as long as in the simulation, but for rounding.
  bool is_promising(const Trial& predicted, double limit_us, const Result& best) const {
    constexpr double inaccuracy = 1e-3;
    const Side side{predicted.used, predicted.microseconds, predicted.most_idle - inaccuracy, 0};
    return predicted.microseconds <= limit_us * (1 + inaccuracy) && is_better(side, best.after);
  }

  static void take_less_idle(double limit_us, Trial found, std::optional<Trial>* trial) {
    const auto rank_of = [&](const Trial& one) {
      return std::pair(one.microseconds > limit_us ? one.microseconds : 0, one.most_idle);
    };
    if (!*trial || rank_of(found) < rank_of(**trial)) *trial = std::move(found);
  }

  // Takes a list schedule that is better than `best`, as take_better() does. Only if it seems to be better, all ranks
  // are simulated.
  bool take_divided(const Divided& divided, double limit_us, const StepGraph::Schedule& schedule, Result* best) const {
    std::optional<Result> found =
        simulated(merge(divided.simulated(), schedule.order, schedule.assignments), &divided.orbits(), limit_us);
    if (divided.is_symmetric() && found && found->after.microseconds <= limit_us &&
        is_better(found->after, best->after))
      found = simulated(divided.merged(schedule), nullptr, limit_us);
    return take_better(limit_us, std::move(found), best);
  }

  // Empty if the plan does not complete in limit_us.
  std::optional<Result> simulated(Plan plan, const simulate::Orbits* orbits, double limit_us) const {
    Result result{std::move(plan), before_, {}, 0, 0};
    simulate::Options simulation = options_.simulation;
    simulation.orbits = orbits;
    simulation.most_us = limit_us;
    simulate::Prediction prediction;
    if (simulate::simulate(result.plan, machine_, simulation, &prediction)) return std::nullopt;
    result.after = side_of(prediction);
    result.fewest_groups = result.after.groups;
    return result;
  }

  // The fastest plan with at most max_groups groups on every rank.
  ncast_status meet_limit(Result* best) const {
    uint32_t limit = options_.max_groups;
    if (most_groups(plan_) <= limit) return NCAST_OK;
    for (; limit > 0; --limit) {
      if (auto found = with([&](size_t) { return limit; }, no_limit);
          found && fits(found->plan) && is_proved(found->plan)) {
        *best = std::move(*found);
        return NCAST_OK;
      }
    }
    return fail(NCAST_UNSUPPORTED, "plan: its groups cannot be merged into %u on every rank", options_.max_groups);
  }

  bool fits(const Plan& plan) const {
    return std::ranges::all_of(plan.ranks, [&](const Rank& rank) { return rank.groups.size() <= options_.max_groups; });
  }

  // Whether a plan is better than `best`. One in which no group is idle for long is, if it has fewer groups than the
  // given plan, or not many more than `best`. Otherwise one with fewer groups is, or with as many that are less idle.
  bool is_better(const Side& found, const Side& best) const {
    const auto rank_of = [&](const Side& side) {
      const bool is_good = !is_idle(side) && (side.groups < before_.groups || !is_idle(before_));
      return std::tuple(!is_good, side.groups * (is_idle(side) ? groups_for_less_idleness : 1), side.most_idle);
    };
    return rank_of(found) < rank_of(best);
  }

  // Takes a plan that is better than `best`. Returns whether the plan is not slower than limit_us.
  bool take_better(double limit_us, std::optional<Result> found, Result* best) const {
    if (!found || found->after.microseconds > limit_us) return false;
    if (options_.max_groups != 0 && !fits(found->plan)) return false;
    found->least_groups = best->least_groups;
    found->fewest_groups = best->fewest_groups = std::min(best->fewest_groups, found->after.groups);
    if (is_better(found->after, best->after) && is_proved(found->plan)) *best = std::move(*found);
    return true;
  }

  // Takes the best plan that is not slower than `best`. Tries to merge groups that are never busy together, then to
  // keep every group busy for a share of the time, then the same number of groups on all ranks, and at last list
  // schedules of divided groups.
  void shrink(Result* best) const {
    const double limit_us = best->after.microseconds * (1 + tolerance);
    const auto consider = [&](std::optional<Result> found) { return take_better(limit_us, std::move(found), best); };
    if (options_.max_groups == 0) consider(merged([&](size_t rank) { return assign_apart(times_[rank]); }, limit_us));
    for (int tenths = 10; tenths > 3; --tenths) {
      const double share = tenths / 10.0;
      const auto groups = [&](size_t rank) {
        double busy = 0;
        for (const GroupTimes& group : times_[rank]) busy += group.busy_us;
        return static_cast<uint32_t>(std::ceil(busy / (limit_us * share)));
      };
      if (consider(with(groups, limit_us))) break;
    }
    uint32_t least = 1, most = std::min(most_groups(plan_), group_limit());
    while (least < most) {
      const uint32_t middle = least + (most - least) / 2;
      if (consider(with([&](size_t) { return middle; }, limit_us)))
        most = middle;
      else
        least = middle + 1;
    }
    CountSearch counts(limit_us, group_limit());
    shrink_divided(limit_us, &counts, best);
  }

  // Searches for the largest share of the time for which the groups can be busy, and then for a few more groups that
  // are less idle.
  void shrink_divided(double limit_us, CountSearch* counts, Result* best) const {
    if (!divided_) return;
    double reached = 0.25, missed = 8;
    const std::vector<Rules> rules = {{Priority::longest_path}, {Priority::shortest_path}};
    std::vector<uint32_t> last;
    bool last_found = false;
    std::optional<Trial> last_trial, trial;
    const auto is_found = [&](double share) {
      std::vector<uint32_t> groups = groups_for(limit_us * share);
      if (groups != last) {
        last_trial.reset();
        last_found = list(groups, limit_us, rules, few_rounds, &last_trial, best);
      }
      last = std::move(groups);
      if (last_found && last_trial) trial = last_trial;
      return last_found;
    };
    while (missed > reached * 1.04) {
      const double share = std::sqrt(reached * missed);
      (is_found(share) ? reached : missed) = share;
    }
    for (int percent = 105; percent <= 125 && is_open(*best); percent += 5) is_found(reached * 100 / percent);
    if (trial || last_trial) counts->add(std::move(trial ? *trial : *last_trial));
  }

  // How long spread() goes on.
  struct Effort {
    int trials;
    int patience;  // trials that are not better
    int rounds;    // of list schedules
  };
  static constexpr Effort few_replicas{6, 2, few_rounds}, many_replicas{16, 6, 2};

  bool has_many_replicas() const { return replicas_ > few_instances; }

  // Tries other numbers of groups until few of them are not idle for long, or the last ones have not been better.
  void spread(double limit_us, const Effort& effort, CountSearch* counts, Result* best) const {
    constexpr double almost_idle = 0.26;  // more rules can make the difference
    std::vector<Rules> rules = replicas_ > 1 ? staggered({0.2, 0.3}) : std::vector<Rules>{};
    if (!has_many_replicas())
      rules.insert(rules.end(), {{Priority::longest_path}, {Priority::shortest_path}, {Priority::earliest_chunk}});
    double least_idle = 1;
    counts->begin_again();
    for (int i = 0, last_better = 0; i < effort.trials && i - last_better <= effort.patience; ++i) {
      const auto groups = is_open(*best) ? counts->next() : std::nullopt;
      if (!groups) break;
      std::optional<Trial> trial;
      list(*groups, limit_us, rules, effort.rounds, &trial, best);
      if (!trial) continue;
      if (has_many_replicas() && is_idle(best->after) && trial->microseconds <= limit_us &&
          trial->most_idle < almost_idle)
        list(*groups, limit_us, staggered({0.1, 0.15, 0.25, 0.35, 0.4}), few_rounds, &trial, best);
      if (trial->microseconds <= limit_us && trial->most_idle < least_idle) {
        least_idle = trial->most_idle;
        last_better = i;
      }
      counts->add(std::move(*trial));
    }
  }

  static std::vector<Rules> staggered(const std::vector<double>& intervals) {
    std::vector<Rules> rules;
    rules.reserve(intervals.size());
    for (const double interval : intervals) rules.push_back({Priority::staggered, false, interval});
    return rules;
  }

  // With the same number of groups on every rank.
  void add_even_trials(CountSearch* counts) const {
    if (!divided_) return;
    for (const uint32_t each : {1u, 2u, 3u, 4u, 6u, 8u}) {
      if (each > group_limit()) break;
      const std::vector<uint32_t> groups(plan_.ranks.size(), each);
      counts->add(divided_->trial_of(groups, divided_->graph().schedule(groups, {Priority::staggered, false, 0.3})));
    }
  }

  // By rank, how many groups have the work if each is busy for so long.
  std::vector<uint32_t> groups_for(double microseconds) const {
    std::vector<uint32_t> groups;
    for (const std::vector<GroupTimes>& rank : times_) {
      double busy = 0;
      for (const GroupTimes& group : rank) busy += group.busy_us;
      groups.push_back(static_cast<uint32_t>(std::clamp<double>(std::ceil(busy / microseconds), 1, group_limit())));
    }
    return groups;
  }

  const Plan& plan_;
  const simulate::Machine& machine_;
  Options options_;
  uint32_t replicas_;
  PlanTimes times_;
  std::optional<Divided> divided_;
  Side before_;
};

}  // namespace

uint32_t most_groups(const Plan& plan) {
  size_t most = 0;
  for (const Rank& rank : plan.ranks) most = std::max(most, rank.groups.size());
  return static_cast<uint32_t>(most);
}

uint64_t steps_of(const Plan& plan) {
  uint64_t steps = 0;
  for (const Rank& rank : plan.ranks)
    for (const Group& group : rank.groups) steps += group.steps.size();
  return steps;
}

bool is_idle(const Side& side) { return side.most_idle > 0.22; }

bool is_open(const Result& result) {
  const uint32_t groups = std::min(result.least_groups, result.fewest_groups);
  return is_idle(result.after) || result.after.groups > groups_for_less_idleness * groups;
}

ncast_status shrink(const Plan& plan, const simulate::Machine& machine, const Options& options, Result* result,
                    uint64_t* simulated_steps) {
  Search search(plan, machine, options);
  if (ncast_status status = search.run(result)) return status;
  *simulated_steps = search.simulated_steps();
  return NCAST_OK;
}

ncast_status improve(const Plan& replicated, uint32_t replicas, const simulate::Machine& machine,
                     const Options& options, double limit_us, CountSearch* counts, Result* best,
                     uint64_t* simulated_steps) {
  Search search(replicated, machine, options, replicas);
  if (ncast_status status = search.improve(limit_us, counts, best)) return status;
  *simulated_steps = search.simulated_steps();
  return NCAST_OK;
}

}  // namespace narrowcast::plan::schedule
