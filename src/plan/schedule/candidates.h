// Candidates for the scheduled plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "plan/ir.h"
#include "plan/schedule/scheduler.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

uint32_t most_groups(const Plan& plan);  // of a rank
uint64_t steps_of(const Plan& plan);

class Candidates {
 public:
  // given: a proved plan, as predicted by `prediction`. The other arguments outlive this object.
  Candidates(const Plan& given, const simulate::Prediction& prediction, const simulate::Machine& machine,
             const Options& options);

  // Replaces the given plan by one that meets a limit of groups, even if it is slower.
  void begin_with(Plan plan, const Side& side);

  const simulate::Machine& machine() const { return machine_; }
  const simulate::Options& simulation() const { return simulation_; }  // without a timeline
  uint32_t max_groups() const { return max_groups_; }                  // of a rank
  double limit_us() const { return limit_us_; }                        // upper limit

  uint32_t fewest_groups() const { return fewest_groups_; }  // of all ranks, among the plans so far

  // Empty if the plan takes longer than limit_us.
  std::optional<Side> predict(const Plan& plan, double limit_us) const;
  // Whether the plan is proved and, if kernels can run the given plan, kernels can run it too.
  bool is_valid(const Plan& plan) const;
  // Whether kernels support this number of rings.
  bool has_few_rings(const Plan& plan) const;
  // Adds the plan if it has at most max_groups() groups and takes at most limit_us(). Returns whether it was added.
  bool add(Plan plan);
  // The valid plan with the fewest groups. Ties go to the plan whose groups are least idle.
  Result best() &&;

 private:
  struct Candidate {
    Plan plan;
    Side side;
  };
  using Order = std::pair<uint32_t, double>;  // smaller is better
  static Order order_of(const Side& side) { return {side.groups, side.most_idle}; }

  const simulate::Machine& machine_;
  simulate::Options simulation_;
  uint32_t max_groups_;
  Side before_;
  double limit_us_ = 0;
  uint32_t fewest_groups_ = 0;
  const Kernels* kernels_;  // null if they cannot run the given plan
  Candidate given_;
  std::multimap<Order, Candidate> others_;
};

}  // namespace narrowcast::plan::schedule
