// A rank's view of its communicator: the rings to and from each peer, the state of the peers, and failures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/deadline.h"
#include "bootstrap/shared_memory.h"
#include "bootstrap/world_id.h"
#include "channel/host/control_block.h"
#include "channel/host/ring.h"

namespace narrowcast::channel {

// A set of ranks, one bit for each.
using RankSet = uint64_t;
inline constexpr RankSet rank_bit(int rank) { return RankSet{1} << rank; }

struct WorldOptions {
  int rank;
  int ranks;               // 1 to max_ranks
  RingShape shape;         // the same on every rank
  bootstrap::Limit limit;  // for joining
  uint64_t costs = 0;      // a hash of the cost model, the same on every rank
};

// The name of a world's segment until all ranks have joined. It does not reveal the id.
std::string segment_name(const bootstrap::WorldId& id);

class World {
 public:
  // Returns when all ranks have joined. Errors: TIMEOUT (names the missing ranks), MISMATCH, REMOTE_ERROR (a rank died
  // or failed while joining), SYSTEM_ERROR, UNSUPPORTED.
  static ncast_status join(const bootstrap::WorldId& id, const WorldOptions& options, std::unique_ptr<World>* world);

  // Leaves the world. Peers can still read the slots that this rank has filled.
  ~World();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  RingSender& to(int peer) { return senders_[static_cast<size_t>(peer)]; }
  RingReceiver& from(int peer) { return receivers_[static_cast<size_t>(peer)]; }
  Doorbell& bell() { return bell_of(rank_); }
  Doorbell& bell_of(int rank) { return control_->member[rank].bell; }

  // Memory that the ranks share in addition, zeroed when the first rank adds it. Every rank adds the same regions in
  // the same order. Error: SYSTEM_ERROR, for example if /dev/shm is full.
  ncast_status add_region(size_t bytes, bootstrap::SharedRange* region);

  // Makes the calls of every rank fail. A communicator keeps its first failure: returns false if it already had one.
  // Any thread.
  bool publish_failure(ncast_status status, const char* message);
  // NCAST_OK, or the published failure with the status of status_at_peers().
  ncast_status check_failure() const;

  // Publish the state of this rank, for peers that wait for it.
  void enter_call() { control_->member[rank_].in_call.store(1, std::memory_order_seq_cst); }
  void leave_call() { control_->member[rank_].in_call.store(0, std::memory_order_seq_cst); }
  void publish_current(const Tag& tag) { control_->member[rank_].current.store(tag); }
  void publish_collective(const Tag& tag) { control_->member[rank_].collective.store(tag); }
  void wake_peers();

  bool in_call(int peer) const { return control_->member[peer].in_call.load(std::memory_order_seq_cst) != 0; }
  // False if the peer has not published a tag, or is storing one right now.
  bool current_of(int peer, Tag* tag) const { return control_->member[peer].current.load(tag); }
  bool collective_of(int peer, Tag* tag) const { return control_->member[peer].collective.load(tag); }

  RankSet left() const;  // ranks that have destroyed their communicator
  RankSet dead() const;  // ranks that ended without destroying it; costs a system call per rank, about 10 us
  int64_t pid_of(int peer) const { return control_->owners.owner[peer].process.pid; }

 private:
  World(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  ncast_status create_or_open(const std::string& name, const WorldOptions& options);
  ncast_status create(const std::string& name, const WorldOptions& options, bool* taken);
  ncast_status enter(const std::string& name, const WorldOptions& options);
  ncast_status wait_for_all(bootstrap::Limit limit);
  std::string missing_ranks() const;
  void make_ring_ends(const WorldOptions& options);

  int rank_;
  int ranks_;
  bool created_ = false;
  bool joined_ = false;
  bootstrap::SharedMemory memory_;
  uint64_t end_bytes_ = 0;  // where the next region begins
  ControlBlock* control_ = nullptr;
  std::vector<RingSender> senders_;
  std::vector<RingReceiver> receivers_;
};

}  // namespace narrowcast::channel
