// The best plan that a search has found.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/ir.h"
#include "plan/schedule/schedule.h"
#include "plan/simulate/simulate.h"

namespace narrowcast::plan::schedule {

inline constexpr double tolerance = 1e-9;  // of rounding in predicted times

uint32_t most_groups(const Plan& plan);  // of a rank
uint64_t steps_of(const Plan& plan);

// ResCCL reports that no thread block is idle for more than this share of the time.
inline constexpr double most_idle = 0.22;
bool is_idle(const Side& side);

// The best plan of an operation that is not slower than a given one. One in which no group is idle for long is better
// than any other one, then one with fewer groups, then one whose groups are less idle.
class Best {
 public:
  // given: a proved plan, as predicted by `prediction`. result: gets the best plan; outlives this object.
  Best(const Plan& given, const simulate::Prediction& prediction, const simulate::Machine& machine,
       const Options& options, Result* result);

  // Replaces the given plan by one that meets a limit of groups, and may be slower.
  void begin_with(Plan plan, const Side& side);

  const simulate::Machine& machine() const { return machine_; }
  const simulate::Options& simulation() const { return simulation_; }  // without a timeline
  bool is_one_batch() const { return simulation_.max_batches == 1; }
  uint32_t max_groups() const { return max_groups_; }  // of a rank
  double limit_us() const { return limit_us_; }        // what plans may take

  const Side& side() const { return result_->after; }
  // Whether a group is idle for long, or plans with far fewer groups could exist.
  bool is_open() const;
  bool is_better(const Side& side) const;

  // What a plan takes. Empty if it does not complete in so much time. orbits: see simulate::Options.
  std::optional<Side> predict(const Plan& plan, double limit_us, const simulate::Orbits* orbits = nullptr) const;
  // Whether the plan is proved, and kernels can run it if they can run the given one.
  bool is_valid(const Plan& plan) const;
  // Whether kernels could run a plan with so many rings.
  bool has_few_rings(const Plan& plan) const;
  // Takes a plan that is better and valid. Returns whether the plan is not slower than limit_us().
  bool consider(Plan plan);
  // Notes that a plan with so many groups is not slower than limit_us().
  void add_groups(uint32_t groups);
  // Notes that no plan with fewer groups has the time for all steps.
  void set_least_groups(uint32_t groups);

 private:
  const simulate::Machine& machine_;
  simulate::Options simulation_;
  uint32_t max_groups_;
  double limit_us_;
  const Kernels* kernels_ = nullptr;  // null: they cannot run the given plan, either
  Result* result_;
};

}  // namespace narrowcast::plan::schedule
