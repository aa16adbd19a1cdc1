// List scheduling: simulates the steps, and decides at every event which of them begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/schedule/step_graph.h"
#include "plan/simulate/program.h"

namespace narrowcast::plan::schedule {

// What a step uses of a link, on average while it runs beside nothing else, as a share of the link's rate.
struct LinkUse {
  uint32_t resource;
  double share;
};

// The link uses of all nodes, one after another: schedules look at those of each node many times.
class LinkUses {
 public:
  // Of the next node.
  void add(std::span<const simulate::Load> transfer, const std::vector<double>& capacities, double alone_us) {
    for (const simulate::Load& load : transfer)
      uses_.push_back({load.resource, load.times * load.amount / capacities[load.resource] / alone_us});
    ends_.push_back(static_cast<uint32_t>(uses_.size()));
  }
  std::span<const LinkUse> of(uint32_t node) const {
    const uint32_t begin = node == 0 ? 0 : ends_[node - 1];
    return std::span(uses_).subspan(begin, ends_[node] - begin);
  }

 private:
  std::vector<LinkUse> uses_;
  std::vector<uint32_t> ends_;  // by node, in uses_
};

// The steps of a plan, and what they take of a machine.
struct ListedSteps {
  const std::vector<Node>& nodes;
  const LinkUses& link_uses;
  const std::vector<std::vector<uint32_t>>& first;  // by rank and group, the node of the first step; the others follow
  const simulate::Programs& programs;
  double launch_us;   // before any step
  uint32_t replicas;  // that the plan consists of
};

// groups: the number of merged groups, by rank. interval_us: between the first steps of staggered replicas.
StepGraph::Schedule schedule_list(const ListedSteps& steps, const std::vector<uint32_t>& groups,
                                  const StepGraph::Rules& rules, double interval_us);

}  // namespace narrowcast::plan::schedule
