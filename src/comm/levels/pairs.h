// The communicators of two ranks for messages between ranks that share no level. Both ranks create one at their first
// message, and keep it.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "comm/levels/owned_comm.h"
#include "select/cost_model.h"

namespace narrowcast::comm {

// Replaces the cost model of a communicator, unless the new one says nothing about its link.
void set_costs_of_part(ncast_comm& part, const select::CostModel& costs);

class Pairs {
 public:
  // all: connects all ranks; outlives this.
  explicit Pairs(bootstrap::Rendezvous& all) : all_(all) {}
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;
  // Leaves the other ranks, one after the other, in an order in which no ranks wait for each other in a circle.
  ~Pairs();

  // All functions: any thread.
  // NULL: they have not been connected.
  ncast_comm* find(int peer) const;
  // The rank of the peer in their communicator.
  int rank_of(int peer) const { return peer < all_.rank() ? 0 : 1; }
  // Both ranks call this, as if with ncast_comm_create, unless they are connected. Blocks. config: of all ranks.
  ncast_status connect(int peer, const ncast_comm_config& config);
  // By peer.
  std::vector<std::pair<int, ncast_comm*>> comms() const;
  // The cost model of all that are connected, now or later; the same on all ranks.
  void set_costs(const select::CostModel& costs);
  // Also those that are connected later.
  void abort();

 private:
  ncast_status create(int peer, ncast_comm_config config, ncast_comm** made) const;

  bootstrap::Rendezvous& all_;
  mutable std::mutex mutex_;  // protects the members below
  std::condition_variable connected_;
  std::set<int> connecting_;  // peers with which a thread connects
  std::map<int, OwnedComm> comms_;
  std::optional<select::CostModel> costs_;
  bool aborted_ = false;
};

}  // namespace narrowcast::comm
