// Runs a prepared plan on this rank, for one call at a time.
#pragma once

#include <functional>

#include "executor/host/group_run.h"
#include "executor/host/plan_state.h"

namespace narrowcast::executor::host {

class PlanRun {
 public:
  PlanRun(Communicator& comm, std::shared_ptr<const ProvedPlan> plan) : state_(comm, std::move(plan)) {}
  // One of the three comes first. Errors: those of PlanMemory.
  ncast_status prepare_own();
  ncast_status prepare_with_own_buffers();
  ncast_status prepare_loaded();
  // Whether it can prepare_own(), or prepare_with_own_buffers(). depth: as in PlanMemory::can_borrow().
  bool can_use_own_rings(uint32_t depth) const {
    return PlanMemory::can_borrow(state_.comm, *state_.plan, state_.facts, depth);
  }
  bool can_use_rings(uint32_t depth) const {
    return PlanMemory::can_borrow_rings(state_.comm, *state_.plan, state_.facts, depth);
  }

  // Whether peers access buffers of this rank, so that they must not begin a call before it is known to be the same.
  bool shares_memory() const { return state_.facts.is_exposed_at_all() || state_.facts.has_semaphores; }

  // Begins a call, which must be valid for the plan.
  void begin(const Call& call, const CallTag& tag);
  // As Transfer.
  ncast_status advance(bool* progressed);
  bool done() const { return batch_ == state_.batches; }
  channel::RankSet awaited_ranks() const;

 private:
  void make_groups();
  void copy_input_in();
  void copy_output_out();

  PlanState state_;
  GroupRuns groups_;
  uint64_t batch_ = 0;  // the micro-batch that runs; with runs_freely(), 0 until all have run
};

// For tests: called before each step of a group of a rank; false delays the group. Set it while no call is running. An
// empty function, the default, delays none.
void set_interleaving(std::function<bool(int rank, uint32_t group)> may_advance);

}  // namespace narrowcast::executor::host
