// A communicator of two levels: see create.h.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "comm/levels/owned_comm.h"
#include "comm/levels/pairs.h"
#include "comm/levels/shape.h"
#include "comm/levels/steps.h"
#include "executor/call.h"
#include "executor/communicator.h"
#include "executor/local_work.h"

namespace narrowcast::comm {

// What it consists of.
struct LevelComms {
  std::unique_ptr<bootstrap::Rendezvous> all;
  OwnedComm within;   // of the ranks of this group
  OwnedComm between;  // of the ranks with this index in every group
};

class Levels final : public ncast_comm, private StepTaker {
 public:
  Levels(ncast_backend backend, LevelShape shape, bool rounds_partial_sums, LevelComms comms);
  ~Levels() override;

  // Called once, before the communicator is used, on all ranks. limit: of later exchanges.
  ncast_status start(bootstrap::Limit limit);

  bool has_levels() const override { return true; }
  ncast_status check_error() override;
  ncast_status call_error() override;
  ncast_status abort() override;
  executor::Counters counters() const override;
  ncast_status exchange(const void* mine, size_t bytes, void* all) override;
  ncast_status wait_until_idle() override;
  void leave_ranks() override;
  void set_costs(select::CostModel costs) override;
  ncast_status prepare_plan(const plan::Plan& plan, const plan::verify::Report& proof, ncast_dtype dtype,
                            ncast_redop op, std::unique_ptr<executor::LoadedPlan>* prepared) override;

  // Before a launch of calls of any communicators of two levels: connects ranks for their messages, except on the host.
  static ncast_status connect(std::span<const executor::Call> calls);

  // Runs or enqueues calls of this communicator in order: collectives first, then sends and receives together.
  ncast_status launch(std::span<const executor::Call> calls);

 private:
  ncast_comm* within() const { return comms_.within.get(); }
  ncast_comm* between() const { return comms_.between.get(); }
  // NULL: it has one level.
  const Levels* levels_between() const {
    return between()->has_levels() ? static_cast<const Levels*>(between()) : nullptr;
  }
  ncast_status take(executor::Call call, bool is_between, int slot) override;
  executor::LocalWork* work() override { return work_.get(); }
  bool overlaps() const override { return overlaps_; }
  void* area(int number) override {
    return static_cast<std::byte*>(memory_) + static_cast<size_t>(number) * area_bytes;
  }
  ncast_status start_predictions();
  int group_of(int rank) const { return rank / shape_.of_group; }
  int index_of(int rank) const { return rank % shape_.of_group; }
  int device() const override { return comms_.within->config().device; }
  ncast_status check(const executor::Call& call) const;
  ncast_status run(std::span<const executor::Call> calls);

  // messages.cc
  // The communicator of one level that has this rank and the peer, or that of both; NULL if they are not connected.
  // rank: of the peer there.
  struct Place {
    ncast_comm* comm;
    int rank;
  };
  Place place_of(int peer) const;
  Place level_of(int peer) const;
  static std::vector<executor::Call> messages_of(const executor::Call& all_to_all_v);
  bool connects_in_calls() const;
  ncast_status attempt(const std::function<ncast_status()>& action);
  ncast_status send_and_receive(std::span<const executor::Call> calls);
  ncast_status launch_messages(std::span<const executor::Call> calls);
  // Of a level: records it, or what has caused it, unless there was an error before, and ends the calls of all ranks.
  void set_error(ncast_status status, std::string message);
  ncast_status cause_of(ncast_status status, std::string* message) const;
  void end_calls(ncast_status status, const std::string& message);
  ncast_status check_own_error() const;
  std::vector<ncast_comm*> parts() const;
  std::string ranks_of(const ncast_comm* part) const;
  // The kernels of one level do not notice that those of the other have failed, so a thread looks for errors.
  void watch();

  const LevelShape shape_;
  const bool rounds_partial_sums_;
  const LevelComms comms_;
  Pairs pairs_;
  std::vector<ncast_comm*> of_level_[2];  // the communicators of one level within and between groups
  std::unique_ptr<executor::LocalWork> work_;
  bool overlaps_ = false;
  void* memory_ = nullptr;
  std::mutex launching_;

  mutable std::mutex mutex_;  // protects the members below
  std::condition_variable leaving_;
  bool is_leaving_ = false;
  bool call_failed_ = false;
  ncast_status error_ = NCAST_OK;
  std::string message_;
  std::array<uint64_t, NCAST_OPERATIONS> calls_ = {};
  std::thread watcher_;
};

// Launches calls of such communicators, one communicator after the other.
ncast_status launch_levels(const std::vector<executor::Call>& calls);

}  // namespace narrowcast::comm
