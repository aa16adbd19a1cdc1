// Decides the calls of one communicator. Its launches, explanations and predictors share the decisions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "codec/row.h"
#include "operation/scaled_sum.h"
#include "select/decision.h"
#include "select/plan_choice.h"

namespace narrowcast::select {

// The calls to which max_collective_ctas applies (comm.h). Shorter ones take too little time to slow compute down.
inline constexpr uint64_t least_limited_bytes = uint64_t{4} << 20;

// What the calls of a communicator have in common; the same on all its ranks.
struct CommTraits {
  int ranks;
  Link link;
  uint32_t max_ctas = most_block_ctas;
  ForcedTransport transport = ForcedTransport::none;
  bool clusters = false;                           // see CallShape
  uint32_t shared_bytes = most_shared_bytes;       // see CallShape
  bool has_levels = false;                         // see CallShape
  uint32_t max_collective_ctas = most_block_ctas;  // of long collectives beside compute

  bool operator==(const CommTraits&) const = default;
};

class Decider {
 public:
  // levels: of the link two_levels.
  Decider(const CommTraits& traits, CostModel costs, std::shared_ptr<const TwoLevels> levels = nullptr);

  const CommTraits& traits() const { return traits_; }
  std::shared_ptr<const CostModel> costs() const {
    const std::lock_guard lock(mutex_);
    return basis_->costs;
  }
  // NULL: the communicator has one level.
  const TwoLevels* levels() const { return levels_.get(); }
  // Whether its ranks are GPUs.
  bool is_on_gpus() const;
  // bytes: as in CallShape.
  CallShape shape_of(Operation operation, ncast_dtype dtype, ncast_codec codec, uint64_t bytes,
                     ncast_redop redop = NCAST_SUM, int root = 0, Placement placement = Placement::unknown) const {
    CallShape shape{operation,
                    dtype,
                    codec,
                    bytes,
                    traits_.ranks,
                    traits_.link,
                    max_ctas_of(operation, bytes),
                    traits_.clusters,
                    traits_.shared_bytes};
    shape.has_levels = traits_.has_levels;
    // Otherwise calls that differ only in these share a decision.
    const bool distinguishes = distinguishes_.load(std::memory_order_relaxed);
    if (distinguishes || codec::is_within(codec) || redop == operation::scaled_sum) shape.redop = redop;
    if (distinguishes) {
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

  // The following four are called at the same position of the communicator's calls on all ranks. Any thread.
  // Adds a plan after the others, which lives as long as the decider. Calls that it suits may run it from now on.
  void add_plan(PlanCandidate plan);
  // Removes the plans with this number of a loaded plan.
  void remove_plan(uint32_t loaded);
  // Lets the user choose between plans. Empty: costs do.
  void set_selector(PlanSelector selector);
  // Replaces the cost model.
  void set_costs(CostModel costs);

  // Whether a decision can be to run a plan instead of the built-in way.
  bool chooses_plans() const { return chooses_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    CallShape shape;
    Decision decision;
  };
  // What decisions depend on, apart from the traits.
  struct Basis {
    std::shared_ptr<const CostModel> costs;
    PlanList list;
    PlanSelector selector;
  };

  uint32_t max_ctas_of(Operation operation, uint64_t bytes) const {
    const bool is_beside_compute = operation == Operation::all_reduce || operation == Operation::all_gather ||
                                   operation == Operation::reduce_scatter;
    const bool is_limited = is_beside_compute && bytes >= least_limited_bytes;
    return is_limited ? std::min(traits_.max_ctas, traits_.max_collective_ctas) : traits_.max_ctas;
  }
  void replace(std::shared_ptr<const Basis> basis);  // under mutex_
  Policy policy_of(const Basis& basis) const {
    return {*basis.costs, traits_.transport, &basis.list, &basis.selector, levels_.get()};
  }

  const CommTraits traits_;
  const std::shared_ptr<const TwoLevels> levels_;
  std::atomic<bool> distinguishes_{false};  // decisions depend on reductions, roots and placements
  std::atomic<bool> chooses_{false};
  mutable std::mutex mutex_;  // of the members below
  std::shared_ptr<const Basis> basis_;
  uint64_t version_ = 0;  // of basis_
  PlanList removed_;      // earlier decisions refer to them
  std::array<std::optional<Entry>, 64> recent_;
};

}  // namespace narrowcast::select
