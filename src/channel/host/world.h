// A rank's view of its communicator: the rings to and from each peer, the state of the peers, and failures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/deadline.h"
#include "bootstrap/shared_memory.h"
#include "bootstrap/shared_settings.h"
#include "bootstrap/world_id.h"
#include "channel/host/control_block.h"
#include "channel/host/ring.h"

namespace narrowcast::channel {

struct WorldOptions {
  int rank;
  int ranks;               // 1 to max_ranks
  RingShape shape;         // follows from the settings
  bootstrap::Limit limit;  // for joining
  bootstrap::SharedSettings settings = {};
};

// The name of a world's segment until all ranks have joined. It does not reveal the id.
std::string segment_name(const bootstrap::WorldId& id);

class World {
 public:
  // Returns when all ranks have joined. Errors: TIMEOUT (names the missing ranks), MISMATCH, REMOTE_ERROR (a rank died
  // or failed while joining), SYSTEM_ERROR, UNSUPPORTED. Ranks that come after a failure get it too, for ten minutes.
  static ncast_status join(const bootstrap::WorldId& id, const WorldOptions& options, std::unique_ptr<World>* world);
  // For a rank that failed before it could join: the other ranks do not wait for it. Its message is the last error.
  static void decline(const bootstrap::WorldId& id, int rank, ncast_status status);

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
  ncast_status fail_of_dead(int peer) const;
  int64_t pid_of(int peer) const { return control_->owners.owner[peer].process.pid; }

 private:
  World(const bootstrap::WorldId& id, int rank, int ranks) : id_(id), rank_(rank), ranks_(ranks) {}

  struct Deadline {
    bootstrap::Limit limit;
    bootstrap::Clock::time_point start;
  };

  RankSet all_ranks() const { return ~RankSet{0} >> (max_ranks - ranks_); }

  ncast_status meet(const WorldOptions& options);
  void give_up(ncast_status status);
  ncast_status create_or_open(const WorldOptions& options);
  ncast_status create(const std::string& name, const WorldOptions& options, bool* taken);
  ncast_status enter(const WorldOptions& options);
  // arrived: the ranks that are not missing.
  template <typename Done>
  ncast_status wait_for_all(Done done, const std::atomic<RankSet>& arrived, const Deadline& deadline);
  std::string missing_ranks(RankSet arrived) const;
  ncast_status make_ring_ends(const WorldOptions& options);

  const bootstrap::WorldId id_;
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
