// The interface of a communicator that every backend implements.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "executor/driven_ranks.h"
#include "executor/loaded_plan.h"
#include "executor/plans_in_use.h"
#include "narrowcast/comm.h"
#include "plan/ir.h"
#include "plan/verify/report.h"
#include "select/decider.h"
#include "status/error.h"

namespace narrowcast::executor {

// Totals of one rank.
struct Counters {
  uint64_t scratch_bytes = 0;
  uint64_t network_bytes = 0;  // of the wire bytes, those that went to other hosts
  std::array<ncast_operation_counters, NCAST_OPERATIONS> operations = {};  // by ncast_operation
};

// In errors of functions that only communicators of one level have.
inline constexpr const char* one_level_hint = "set NARROWCAST_LEVELS=1 for one level, of at most 8 GPUs";

}  // namespace narrowcast::executor

struct ncast_comm {
 public:
  virtual ~ncast_comm() = default;  // only after wait_until_idle() and leave_ranks()

  ncast_backend backend() const { return backend_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // Whether it consists of other communicators (comm/levels/), and the backend is theirs.
  virtual bool has_levels() const { return false; }
  // No other communicator of this process has or had the same number, even if it has the same address.
  uint64_t number() const { return number_; }

  // The first error of the communicator, on this rank or another one. Sets the last error to its message. Any thread.
  virtual ncast_status check_error() = 0;
  // The first error that ended a call of this rank, or its own abort. Sets the last error to its message. Any thread.
  virtual ncast_status call_error() = 0;
  // As check_error(), and also detects that one of these ranks has died, which the backend may otherwise notice only in
  // calls. Any thread.
  virtual ncast_status check_alive(std::span<const int> ranks) {
    static_cast<void>(ranks);
    return check_error();
  }
  // Ends the calls of all ranks. Any thread.
  virtual ncast_status abort() = 0;
  // Any thread.
  virtual narrowcast::executor::Counters counters() const = 0;
  // The decider of how calls run. Launches, explanations and predictors share it; predictors may outlive the
  // communicator. Any thread.
  const std::shared_ptr<narrowcast::select::Decider>& decider() const { return decider_; }
  // Replaces the cost model, at the same position of the calls on all ranks. Any thread.
  virtual void set_costs(narrowcast::select::CostModel costs) { decider_->set_costs(std::move(costs)); }

  // Every rank contributes `bytes` bytes of host memory and receives those of all ranks, in rank order. Blocks.
  // Collective, at the same position in the sequence of the ranks' calls.
  virtual ncast_status exchange(const void* mine, size_t bytes, void* all) = 0;

  // The settings with which it was created, and its GPU (-1 on the host).
  ncast_comm_config config() const {
    ncast_comm_config own = config_;
    own.device = device();
    own.cost_model = has_cost_model_ ? cost_model_.c_str() : nullptr;
    return own;
  }
  // Called once, before other threads can use the communicator.
  void set_config(const ncast_comm_config& config) {
    config_ = config;
    has_cost_model_ = config.cost_model != nullptr;
    if (has_cost_model_) cost_model_ = config.cost_model;
  }

  // All ranks, if one thread created them and drives them; NULL otherwise.
  const std::shared_ptr<narrowcast::executor::DrivenRanks>& driven_ranks() const { return driven_ranks_; }
  // Called at most once, before the communicator is used.
  void set_driven_ranks(std::shared_ptr<narrowcast::executor::DrivenRanks> ranks) { driven_ranks_ = std::move(ranks); }
  // For functions that wait for the same function of all other ranks. Error: INVALID_ARGUMENT if this thread drives
  // them, too.
  ncast_status check_alone() const { return driven_ranks_ == nullptr ? NCAST_OK : driven_ranks_->check_alone(); }

  // Prepares a lowered and verified plan, which has as many ranks, for calls of this type and reduction. Does not wait
  // for other ranks. proof: the report of the verifier. Errors: INVALID_ARGUMENT, UNSUPPORTED, and what the backend
  // reports.
  virtual ncast_status prepare_plan(const narrowcast::plan::Plan& plan, const narrowcast::plan::verify::Report& proof,
                                    ncast_dtype dtype, ncast_redop op,
                                    std::unique_ptr<narrowcast::executor::LoadedPlan>* prepared) {
    static_cast<void>(plan), static_cast<void>(proof), static_cast<void>(dtype), static_cast<void>(op);
    static_cast<void>(prepared);
    return narrowcast::fail(NCAST_UNSUPPORTED, "this backend does not run plans");
  }

  // The loaded plans that its calls may run, by the number that decisions name.
  narrowcast::executor::PlansInUse& plans_in_use() { return plans_in_use_; }

  // The first step of destroying a communicator: waits until all its calls have run. It is destroyed even if this
  // returns an error.
  virtual ncast_status wait_until_idle() = 0;
  // The second step: releases resources that need the cooperation of the other ranks. May wait for them; abort() ends
  // the wait.
  virtual void leave_ranks() {}

 protected:
  ncast_comm(ncast_backend backend, int rank, int ranks) : backend_(backend), rank_(rank), ranks_(ranks) {}
  // Backends call this once, before the communicator is used.
  void set_decider(const narrowcast::select::CommTraits& traits, narrowcast::select::CostModel costs,
                   std::shared_ptr<const narrowcast::select::TwoLevels> levels = nullptr) {
    decider_ = std::make_shared<narrowcast::select::Decider>(traits, std::move(costs), std::move(levels));
  }

 private:
  virtual int device() const { return -1; }

  static uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  const ncast_backend backend_;
  const uint64_t number_ = next_number();
  const int rank_;
  const int ranks_;
  std::shared_ptr<narrowcast::select::Decider> decider_;
  narrowcast::executor::PlansInUse plans_in_use_;
  std::shared_ptr<narrowcast::executor::DrivenRanks> driven_ranks_;
  ncast_comm_config config_ = {};
  std::string cost_model_;
  bool has_cost_model_ = false;
};
