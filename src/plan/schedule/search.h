// The search for list schedules with few groups, none of which is idle for long.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/ir.h"
#include "plan/schedule/best.h"
#include "plan/schedule/counts.h"
#include "plan/schedule/divided.h"
#include "plan/schedule/step_graph.h"

namespace narrowcast::plan::schedule {

// More instances than these are tried only if a group is idle for long otherwise, each time twice as many, and begin
// one after another: then pipelines are short, compared with the work.
inline constexpr uint32_t few_instances = 4;

// After schedules of so many steps, which take one or two minutes, a search for better ones ends.
inline constexpr uint64_t most_scheduled_steps = 16'000'000;

// More is tried with schedules whose groups are almost busy enough: none is idle for more than this share of the time.
inline constexpr double almost_busy = most_idle + 0.05;

// The schedule of one micro-batch with the least idle groups that is not slower than the limit, and how to make it.
struct Nearest {
  std::shared_ptr<const Divided> divided = nullptr;
  std::optional<StepGraph> graph = std::nullopt;  // with the durations that it was made with
  StepGraph::Rules rules = {};
  Trial trial = {};
};

// Whether a schedule seems to be better than the best plan.
bool is_promising(const Trial& trial, const Best& best);
// Takes the plan of a schedule if it is better. Returns whether it is not slower than the limit.
bool consider(const Divided& divided, const StepGraph::Schedule& schedule, Best* best);

// Schedules a divided plan for different numbers of groups, and takes what is better than `best`.
// nearest: outlives the search. alone: the plan in as many groups as divided.simulated() has, as predicted.
class ListSearch {
 public:
  ListSearch(std::shared_ptr<const Divided> divided, const simulate::Prediction& alone, uint32_t replicas,
             CountSearch* counts, Nearest* nearest, Best* best);

  // Looks for the largest share of the time that the ranks' work can take in schedules that are not slower than the
  // limit: each rank then has as few groups as its work needs.
  void bisect();
  // Tries the numbers of groups that `counts` predicts to be least idle.
  void vary();
  // Of the schedules of vary(), the one that comes closest to keeping all groups busy, even if it is slower than the
  // limit. Empty before.
  const std::optional<Trial>& closest() const { return closest_; }
  // Changes numbers of groups by one, for all ranks with the same number and about the same work, as long as schedules
  // come closer to keeping all groups busy.
  void climb(Trial from);
  // Tries the same number of groups for all ranks, if the groups of a first schedule are almost busy enough. If ranks
  // have about the same work, `counts` follows small differences between them instead.
  void even();

 private:
  struct Outcome {
    bool is_found = false;       // a plan that is not slower than the limit
    std::optional<Trial> trial;  // with the least idle groups of the schedules that are not slower, or the shortest
  };
  std::vector<StepGraph::Rules> rules() const;
  // How far a schedule is from keeping all groups busy: the share of the time in which the idlest one does not work,
  // and more if it is slower than the limit.
  double distance(const Trial& trial) const;
  // A schedule for the same number of groups on each rank.
  Trial even_trial(uint32_t each) const;
  Outcome try_counts(const std::vector<uint32_t>& groups, const std::vector<StepGraph::Rules>& all_rules);

  std::shared_ptr<const Divided> divided_;
  std::vector<double> busy_us_;  // by rank, of its groups
  uint32_t replicas_;
  CountSearch* counts_;
  Nearest* nearest_;
  Best* best_;
  std::optional<Trial> closest_;
  uint64_t scheduled_steps_ = 0;
};

}  // namespace narrowcast::plan::schedule
