// Decides the calls of one communicator. Its launches, explanations and predictors share the decisions.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "select/decision.h"

namespace narrowcast::select {

// What the calls of a communicator have in common; the same on all its ranks.
struct CommTraits {
  int ranks;
  Link link;
  uint32_t max_ctas = most_block_ctas;
  ForcedTransport transport = ForcedTransport::none;
  bool clusters = false;  // see CallShape
};

class Decider {
 public:
  Decider(const CommTraits& traits, CostModel costs);

  const CommTraits& traits() const { return traits_; }
  const CostModel& costs() const { return costs_; }
  // bytes: as in CallShape.
  CallShape shape_of(Operation operation, ncast_dtype dtype, ncast_codec codec, uint64_t bytes,
                     ncast_redop redop = NCAST_SUM, int root = 0, Placement placement = Placement::unknown) const {
    CallShape shape{operation, dtype, codec, bytes, traits_.ranks, traits_.link, traits_.max_ctas, traits_.clusters};
    if (distinguishes_.load(std::memory_order_relaxed)) {  // otherwise calls that differ only in these share a decision
      shape.redop = redop;
      shape.root = root;
      shape.placement = placement;
    }
    return shape;
  }
  // Any thread. Programs repeat their calls, so recent decisions are cached: a lookup takes about 10 ns, a decision
  // about 700 ns. A mutex is cheaper here than a sequence lock, with which a lookup took 26 ns.
  Decision decide(const CallShape& shape);
  // For explanations. decision: of this call.
  std::vector<Alternative> alternatives_of(const CallShape& shape, const Decision& decision);

  // The following three are called at the same position of the communicator's calls on all ranks. Any thread.
  // Adds a plan after the others, which lives as long as the decider. Calls that it suits may run it from now on.
  void add_plan(PlanCandidate plan);
  // Removes the plans with this number of a loaded plan.
  void remove_plan(uint32_t loaded);
  // Lets the user choose between plans. Empty: costs do.
  void set_selector(PlanSelector selector);

  // Whether a decision can be to run a plan instead of the built-in way.
  bool chooses_plans() const { return chooses_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    CallShape shape;
    Decision decision;
  };
  struct Plans {
    PlanList list;
    PlanSelector selector;
  };

  void replace(std::shared_ptr<const Plans> plans);  // under mutex_
  Policy policy_of(const Plans& plans) const { return {costs_, traits_.transport, &plans.list, &plans.selector}; }

  const CommTraits traits_;
  const CostModel costs_;
  std::atomic<bool> distinguishes_{false};  // decisions depend on reductions, roots and placements
  std::atomic<bool> chooses_{false};
  std::mutex mutex_;  // of the members below
  std::shared_ptr<const Plans> plans_;
  uint64_t version_ = 0;  // of plans_
  PlanList removed_;      // earlier decisions refer to them
  std::array<std::optional<Entry>, 64> recent_;
};

}  // namespace narrowcast::select
