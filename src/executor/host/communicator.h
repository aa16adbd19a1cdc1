// The communicator of the host backend: the rings, the staging buffers, the counters, the order of calls and the first
// error.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "channel/host/world.h"
#include "executor/call.h"
#include "executor/communicator.h"
#include "executor/host/staging.h"
#include "select/options.h"

namespace narrowcast::executor::host {

class Plans;

// The public data members belong to the call whose turn it is. The functions can be called from any thread.
class Communicator final : public ncast_comm {
 public:
  Communicator(std::unique_ptr<channel::World> joined_world, const StagingShape& shape, bootstrap::Limit wait_limit,
               const select::Options& options, select::CostModel costs);
  ~Communicator() override;

  const std::unique_ptr<channel::World> world;
  // By rank, if the library's calls distinguish ranks of the same host from others: there are several hosts, and some
  // have several ranks. Otherwise empty.
  const std::vector<int> levels;
  const bool rounds_partial_sums;  // of a host, before they are combined with those of others
  const bootstrap::Limit limit;
  Staging staging;
  uint64_t collectives = 0;            // collectives started so far
  std::vector<uint64_t> sends;         // by peer: sends started so far
  std::vector<uint64_t> receives;      // by peer: receives started so far
  const std::unique_ptr<Plans> plans;  // that this communicator has prepared

  channel::RankSet all_peers() const;

  // Calls run one at a time in the order of their tickets, on whichever streams they are.
  uint64_t take_ticket();
  // ABORTED if this thread was interrupted; the turn has come nevertheless.
  ncast_status wait_for_turn(uint64_t ticket);
  void end_turn();
  ncast_status wait_until_idle() override;

  // Records the error of a call if it is the first, and makes the calls of the other ranks fail.
  void set_error(ncast_status status, const char* message);
  // The first error on this rank, or a failure that a peer has published.
  ncast_status check_error() override;
  ncast_status call_error() override;
  ncast_status check_alive(std::span<const int> ranks) override;
  ncast_status abort() override;
  ncast_status exchange(const void* mine, size_t bytes, void* all) override;
  ncast_status prepare_plan(const plan::Plan& plan, const plan::verify::Report& proof, ncast_dtype dtype,
                            ncast_redop op, std::unique_ptr<LoadedPlan>* prepared) override;

  void count_call(Operation operation);
  void count_sent(Operation operation, uint64_t raw_bytes, uint64_t wire_bytes);
  void count_crossed(uint64_t wire_bytes);  // to another host
  Counters counters() const override;

 private:
  template <typename Done>
  ncast_status wait_for(Done done);

  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;
  uint64_t next_ticket_ = 0;
  uint64_t turn_ = 0;
  std::atomic<bool> aborted_{false};  // by this rank
  ncast_status error_ = NCAST_OK;     // the first of this rank's calls
  std::string message_;
  Counters counters_;
};

// The communicator of a call that was launched on this backend.
inline Communicator& communicator_of(const Call& call) { return static_cast<Communicator&>(*call.comm); }

}  // namespace narrowcast::executor::host
