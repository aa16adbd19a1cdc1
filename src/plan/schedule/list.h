// List scheduling: which of a number of merged groups runs which step of a plan of split(), and in which order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/schedule/merge.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// The steps of a plan, what they wait for, and what they take if no other step shares their links.
class StepGraph {
 public:
  // parts: the result of split().
  StepGraph(const Plan& parts, const simulate::Machine& machine, const simulate::Options& simulation);

  // By rank, the time of all its steps, one after another.
  std::vector<double> work_us() const;

  struct Schedule {
    std::vector<Assignment> assignments;  // by rank
    PlanTimes order;                      // `begin` of a step: how many steps begin before it
  };
  // Lets every step begin as soon as a merged group of its rank is free.
  // groups: the number of merged groups, by rank, at least 1.
  // divides_evenly: groups of several steps are divided evenly among the merged groups before any step begins.
  // Otherwise a merged group takes one when its first step can begin.
  Schedule schedule(const std::vector<uint32_t>& groups, bool divides_evenly) const;

 private:
  friend class ListScheduler;
  struct LinkUse {
    uint32_t link = 0;
    double share = 0;  // of its rate, on average while the step runs
  };
  struct Node {
    uint32_t rank = 0, group = 0, step = 0;
    double duration = 0;
    std::vector<LinkUse> links = {};
    uint32_t distance = 0;             // to the rank that it sends to
    uint32_t before = 0;               // number of steps that it waits for
    std::vector<uint32_t> after = {};  // nodes that wait for it
    double tail = 0;                   // the longest path that begins with this step
  };

  void order(uint32_t first, uint32_t second) {
    nodes_[first].after.push_back(second);
    ++nodes_[second].before;
  }
  void add_order(const Plan& parts);
  void sort();
  void set_tails();

  std::vector<Node> nodes_;
  std::vector<uint32_t> sorted_;              // none comes before one that it waits for
  std::vector<std::vector<uint32_t>> first_;  // by rank and group, the node of the first step; the others follow
  size_t links_ = 0;
};

}  // namespace narrowcast::plan::schedule
