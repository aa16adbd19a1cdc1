// A rank's view of its communicator: the rings to and from each peer, the state of the peers, and failures. Ranks of
// one host share memory (shared_world.h); those of different hosts exchange messages (channel/network/network_world.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/deadline.h"
#include "bootstrap/shared_memory.h"
#include "bootstrap/shared_settings.h"
#include "channel/host/control_block.h"
#include "channel/host/ring.h"

namespace narrowcast::channel {

struct WorldOptions {
  int rank;
  int ranks;               // 1 to max_ranks
  RingShape shape;         // follows from the settings
  bootstrap::Limit limit;  // for joining
  bootstrap::SharedSettings settings = {};
  bootstrap::Limit call_limit = {0};  // the time limit of calls, within which a lost host is found
  uint64_t host = 0;                  // bootstrap::own_host(); matters if ranks may be on several hosts
};

class World {
 public:
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // Leaves the world. Peers can still read the slots that this rank has filled.
  virtual ~World() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The hosts of the ranks are numbered from 0, in the order of their first ranks.
  int hosts() const { return hosts_; }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  RingSender& to(int peer) { return senders_[static_cast<size_t>(peer)]; }
  RingReceiver& from(int peer) { return receivers_[static_cast<size_t>(peer)]; }
  Doorbell& bell() { return bell_of(rank_); }
  Doorbell& bell_of(int rank) { return *bells_[static_cast<size_t>(rank)]; }

  // Memory that the ranks share in addition, zeroed when the first rank adds it. Every rank adds the same regions in
  // the same order. Errors: SYSTEM_ERROR, for example if /dev/shm is full; UNSUPPORTED between hosts.
  virtual ncast_status add_region(size_t bytes, bootstrap::SharedRange* region) = 0;

  // Makes the calls of every rank fail. A communicator keeps its first failure: returns false if it already had one.
  // Any thread.
  bool publish_failure(ncast_status status, const char* message);
  // NCAST_OK, or the published failure with the status of status_at_peers().
  ncast_status check_failure() const;

  // Publish the state of this rank, for peers that wait for it.
  void enter_call() { own_member().in_call.store(1, std::memory_order_seq_cst); }
  void leave_call() { own_member().in_call.store(0, std::memory_order_seq_cst); }
  void publish_current(const Tag& tag) { own_member().current.store(tag); }
  void publish_collective(const Tag& tag) { own_member().collective.store(tag); }
  void wake_peers();

  bool in_call(int peer) const { return member(peer).in_call.load(std::memory_order_seq_cst) != 0; }
  // False if the peer has not published a tag, or is storing one right now.
  bool current_of(int peer, Tag* tag) const { return member(peer).current.load(tag); }
  bool collective_of(int peer, Tag* tag) const { return member(peer).collective.load(tag); }

  RankSet left() const;              // ranks that have destroyed their communicator
  virtual RankSet dead() const = 0;  // ranks that ended without destroying it; may cost a system call per rank
  virtual ncast_status fail_of_dead(int peer) const = 0;
  virtual std::string name_of(int peer) const = 0;  // "rank 2 (pid 77)"

 protected:
  World(int rank, int ranks) : rank_(rank), ranks_(ranks), host_of_(static_cast<size_t>(ranks), 0) {}

  // By rank: WorldOptions::host. Without it, there is one host.
  void set_hosts(std::span<const uint64_t> hosts);
  RankSet all_ranks() const { return ~RankSet{0} >> (max_ranks - ranks_); }
  Member& own_member() const { return control_->member[rank_]; }
  Member& member(int peer) const { return blocks_[static_cast<size_t>(peer)]->member[peer]; }
  // The block of this host: the failure of the communicator, and the state of every rank, until use_link().
  void use(ControlBlock* control);
  // For a peer on another host: its state is in `control`, and `bell` is notified for it.
  void use_link(int peer, ControlBlock* control, Doorbell& bell);
  // The rings of each rank, in order, after use() and use_link(). NULL for this rank, which has no rings to itself.
  void add_rings(void* to, void* from, const RingShape& shape);

  const int rank_;
  const int ranks_;
  ControlBlock* control_ = nullptr;

 private:
  int hosts_ = 1;
  std::vector<int> host_of_;
  std::vector<RingSender> senders_;
  std::vector<RingReceiver> receivers_;
  std::vector<ControlBlock*> blocks_;  // with the state of each rank
  std::vector<Doorbell*> bells_;
};

}  // namespace narrowcast::channel
