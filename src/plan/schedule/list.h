// List scheduling: assigns the steps of a plan of split() to a given number of merged groups, and orders them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ir.h"
#include "plan/schedule/merge.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

// The steps of a plan, their dependences, and their durations if no other step shares their links.
class StepGraph {
 public:
  // parts: the result of split().
  StepGraph(const Plan& parts, const simulate::Machine& machine, const simulate::Options& simulation);

  // By rank, the total duration of its steps.
  std::vector<double> work_us() const;

  struct Schedule {
    std::vector<Assignment> assignments;  // by rank
    PlanTimes order;                      // `begin` of a step: the number of steps that begin before it
  };
  // Starts every step as soon as a merged group of its rank is free.
  // groups: the number of merged groups, by rank, at least 1.
  // divides_evenly: whether groups of several steps are divided evenly among the merged groups in advance. Otherwise a
  // merged group takes one when its first step is ready.
  Schedule schedule(const std::vector<uint32_t>& groups, bool divides_evenly) const;

 private:
  friend class ListScheduler;
  struct LinkUse {
    uint32_t link = 0;
    double share = 0;  // average share of its rate while the step runs
  };
  struct Node {
    uint32_t rank = 0, group = 0, step = 0;
    double duration = 0;
    std::vector<LinkUse> links = {};
    uint32_t distance = 0;             // to the rank that it sends to
    uint32_t before = 0;               // number of dependences
    std::vector<uint32_t> after = {};  // dependents
    double tail = 0;                   // length of the longest path from this step
  };

  void order(uint32_t first, uint32_t second) {
    nodes_[first].after.push_back(second);
    ++nodes_[second].before;
  }
  void add_order(const Plan& parts);
  void sort();
  void set_tails();

  std::vector<Node> nodes_;
  std::vector<uint32_t> sorted_;              // topological order
  std::vector<std::vector<uint32_t>> first_;  // by rank and group, the node of the first step; the others follow
  size_t links_ = 0;
};

}  // namespace narrowcast::plan::schedule
