// The host backend's communicator: a world of rings, staging, counters, the order of its calls and its first error.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "channel/host/world.h"
#include "executor/call.h"
#include "executor/communicator.h"
#include "executor/host/staging.h"

namespace narrowcast::executor::host {

// Public members are for the call whose turn it is; functions are for any thread.
class Communicator final : public ncast_comm {
 public:
  Communicator(std::unique_ptr<channel::World> its_world, const StagingShape& shape, bootstrap::Limit its_limit);

  const std::unique_ptr<channel::World> world;
  const bootstrap::Limit limit;
  Staging staging;
  uint64_t collectives = 0;     // started
  std::vector<uint64_t> sends;  // started, by peer
  std::vector<uint64_t> receives;

  // Calls run one at a time in the order of their tickets, whatever streams they are on.
  uint64_t take_ticket();
  void wait_for_turn(uint64_t ticket);
  void end_turn();
  ncast_status wait_until_idle() override;

  // Keeps the first error, and ends the calls of the other ranks with it.
  void set_error(ncast_status status, const char* sentence);
  // The first error on this rank, or a failure that a peer has published.
  ncast_status check_error() override;
  ncast_status abort() override;

  void count_call(Operation operation);
  void count_sent(Operation operation, uint64_t raw_bytes, uint64_t wire_bytes);
  Counters counters() const override;

 private:
  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;
  uint64_t next_ticket_ = 0;
  uint64_t turn_ = 0;
  ncast_status error_ = NCAST_OK;
  std::string sentence_;
  Counters counters_;
};

// Of a call that was launched on this backend.
inline Communicator& communicator_of(const Call& call) { return static_cast<Communicator&>(*call.comm); }

}  // namespace narrowcast::executor::host
