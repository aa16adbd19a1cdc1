// The host backend's communicator: a world of lanes, staging, counters, the order of its calls and its first error.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "channel/world.h"
#include "collective/staging.h"
#include "narrowcast/comm.h"

// Public members are for the call whose turn it is; functions are for any thread.
struct ncast_comm {
 public:
  ncast_comm(std::unique_ptr<narrowcast::channel::World> its_world, const narrowcast::collective::StagingShape& shape,
             narrowcast::channel::Limit its_limit);

  const std::unique_ptr<narrowcast::channel::World> world;
  const narrowcast::channel::Limit limit;
  narrowcast::collective::Staging staging;
  uint64_t collectives = 0;     // started
  std::vector<uint64_t> sends;  // started, by peer
  std::vector<uint64_t> receives;

  int rank() const { return world->rank(); }
  int ranks() const { return world->ranks(); }

  // Calls run one at a time in the order of their tickets, whatever streams they are on.
  uint64_t take_ticket();
  void wait_for_turn(uint64_t ticket);
  void end_turn();
  void wait_until_idle();

  // Keeps the first error, and ends the calls of the other ranks with it.
  void set_error(ncast_status status, const char* sentence);
  // The first error on this rank, or a failure that a peer has published.
  ncast_status check_error();
  void abort();

  void count_calls(uint64_t calls);
  void count_sent(uint64_t raw_bytes, uint64_t wire_bytes);
  ncast_comm_counters counters() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;
  uint64_t next_ticket_ = 0;
  uint64_t turn_ = 0;
  ncast_status error_ = NCAST_OK;
  std::string sentence_;
  ncast_comm_counters counters_ = {};
};
