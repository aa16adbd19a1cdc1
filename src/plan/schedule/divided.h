// A plan of split(), of which one rank is scheduled for all that do the same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/ir.h"
#include "plan/schedule/counts.h"
#include "plan/schedule/step_graph.h"
#include "plan/schedule/symmetry.h"

namespace narrowcast::plan::schedule {

class Divided {
 public:
  // replicas: how many the plan consists of.
  Divided(Plan divided, const simulate::Machine& machine, const simulate::Options& simulation, uint32_t replicas)
      : plan_(std::move(divided)),
        symmetry_(find_symmetry(plan_, machine)),
        simulated_(plan_),
        graph_(graph_of(machine, simulation, replicas)) {}

  const Plan& simulated() const { return simulated_; }  // without the groups of the other ranks
  const simulate::Orbits& orbits() const { return symmetry_.orbits; }
  bool is_symmetric() const { return !symmetry_.is_trivial(); }
  const StepGraph& graph() const { return graph_; }

  // The plan with the groups of all ranks merged.
  Plan merged(const StepGraph::Schedule& schedule) const;

  // How evenly a schedule for so many groups of each rank occupies them.
  Trial trial_of(const std::vector<uint32_t>& groups, const StepGraph::Schedule& schedule) const;

  // How many groups of all ranks have the time for their steps, if they are never idle.
  uint32_t least_groups(double microseconds) const;

 private:
  StepGraph graph_of(const simulate::Machine& machine, simulate::Options simulation, uint32_t replicas);

  Plan plan_;
  Symmetry symmetry_;
  Plan simulated_;
  StepGraph graph_;
};

}  // namespace narrowcast::plan::schedule
