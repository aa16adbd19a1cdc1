// The steps of a plan of split(), what they wait for, and schedules of them: which of a number of merged groups runs
// which step, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "plan/ir.h"
#include "plan/schedule/merge.h"
#include "plan/simulate/machine.h"
#include "plan/simulate/program.h"

namespace narrowcast::plan::schedule {

// A step of a plan of split(), with what it takes of a machine.
struct Node {
  uint32_t rank = 0, group = 0, step = 0;
  uint32_t program = 0;                            // of its group, in the simulation
  double fixed_us = 0;                             // from the end of its work and transfers to its own
  uint32_t distance = 0;                           // to the rank that it sends to
  uint32_t chunk = 0;                              // of the result, the first one that needs the step
  uint32_t turn = 0;                               // of that chunk, as each rank begins with its own share of them
  uint32_t before = 0;                             // number of steps that it waits for
  std::vector<std::pair<uint32_t, double>> after;  // nodes that wait for this one, and for how long after its end
  double alone_us = 0;                             // its duration beside nothing else
  double duration = 0;                             // estimated
  double tail = 0;                                 // the longest path that begins with this step
};

// The steps of a plan and their order.
class StepGraph {
 public:
  // simulation: of calls, of which one micro-batch is scheduled. Of ranks that do the same, one is scheduled.
  // replicas: how many the plan consists of. `plan` and `machine` must outlive the graph and its copies.
  StepGraph(const Plan& plan, const simulate::Machine& machine, const simulate::Options& simulation, uint32_t replicas);

  size_t steps() const { return nodes_.size(); }

  // Which step begins first if several could.
  enum class Priority : uint8_t {
    longest_path,    // the one with the longest path after it
    shortest_path,   // the one with the shortest path after it; if paths are about equal, the one for the earlier chunk
    earliest_chunk,  // the one that the first chunk of the result needs
    staggered  // the one with the longest path after it, but replicas of the plan one after another, in some interval
  };
  struct Rules {
    Priority priority = Priority::longest_path;
    // Whether groups of several steps are divided evenly among the merged groups before any step begins. Otherwise a
    // merged group takes one when its first step can begin.
    bool divides_evenly = false;
    // If staggered, of replicas: a share of the time that each of them needs.
    double interval = 0;
    // While the steps that run use so much of a link on average, as a share of its rate, those that do not need it
    // begin first. 0: links do not matter.
    double full_link = 0;
    // If not empty, which merged group runs which group, by rank.
    std::vector<Assignment> assignments = {};
    // If not empty, by rank and group: by how much longer the paths of its steps count than they are, as a share of the
    // longest one.
    std::vector<std::vector<double>> lengthening = {};
  };
  struct Schedule {
    std::vector<Assignment> assignments;       // by rank
    PlanTimes order;                           // `begin` of a step: how many steps begin before it
    std::vector<double> durations;             // by node
    std::vector<std::vector<double>> busy_us;  // by rank and merged group; 0: it has no steps
    double microseconds = 0;
  };
  // Lets every step begin as soon as a merged group of its rank is free.
  // groups: the number of merged groups, by rank.
  Schedule schedule(const std::vector<uint32_t>& groups, const Rules& rules) const;

  // What schedule() takes at least.
  double least_us(const std::vector<uint32_t>& groups) const;
  // How many merged groups of a rank that is scheduled have the time for its steps.
  uint32_t least_groups(uint32_t rank, double microseconds) const;

  // How long steps take depends on what runs beside them, so a schedule has better estimates for the next one.
  void set_durations(const std::vector<double>& durations);

 private:
  void add_order(const Plan& plan, const simulate::Programs& programs);
  void order(uint32_t first, uint32_t second, double delay) {
    nodes_[first].after.emplace_back(second, delay);
    ++nodes_[second].before;
  }
  std::vector<uint32_t> sorted() const;  // nodes; none comes before one that it waits for
  void set_tails();
  void set_turns(const Plan& plan);

  struct Model;  // of what steps take

  std::shared_ptr<const Model> model_;
  uint32_t replicas_;
  std::vector<Node> nodes_;
  std::vector<std::vector<uint32_t>> first_;  // by rank and group, the node of the first step
  std::vector<double> held_us_;               // by rank, for which steps hold merged groups at least
  double longest_us_ = 0;                     // path
};

}  // namespace narrowcast::plan::schedule
