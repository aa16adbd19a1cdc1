// List scheduling: which of a number of merged groups runs which group of a plan, and in which order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/schedule/merge.h"
#include "plan/simulate/machine.h"

namespace narrowcast::plan::schedule {

// The steps of a plan of split(), with their times and order.
class StepGraph {
 public:
  // times: of the steps, simulated in the same plan.
  StepGraph(const Plan& plan, const simulate::Machine& machine, const PlanTimes& times);

  struct Schedule {
    std::vector<Assignment> assignments;  // by rank
    PlanTimes order;                      // `begin` of a step: how many steps begin before it
  };
  // Lets every step begin as soon as a merged group of its rank is free: first those that the longest path follows.
  // groups: by rank, of how many merged groups.
  Schedule schedule(const std::vector<uint32_t>& groups) const;

  // Takes how long steps last from the plan that merge() made of a schedule.
  void set_durations(const Schedule& schedule, const PlanTimes& merged);

 private:
  struct Node {
    uint32_t rank = 0, group = 0, step = 0;
    double duration = 0;
    double tail = 0;        // the longest path that begins with this step
    uint32_t distance = 0;  // to the rank to which it sends
    uint32_t before = 0;
    std::vector<std::pair<uint32_t, double>> after;  // nodes that wait for this one, and for how long after its end
  };
  void order(uint32_t first, uint32_t second, double delay) {
    nodes_[first].after.emplace_back(second, delay);
    ++nodes_[second].before;
  }
  void add_order(const Plan& plan, const simulate::Machine& machine);
  void set_tails();

  std::vector<Node> nodes_;
  std::vector<std::vector<uint32_t>> first_;  // by rank and group, the node of the first step
  PlanTimes times_;
};

}  // namespace narrowcast::plan::schedule
