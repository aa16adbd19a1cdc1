// The ranks of a communicator as one of them sees them: its lanes to and from each peer, who is there, what has failed.
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

// A set of ranks, one bit each.
using RankSet = uint64_t;
inline constexpr RankSet only(int rank) { return RankSet{1} << rank; }

struct WorldOptions {
  int rank;
  int ranks;               // 1 to max_ranks
  LaneShape shape;         // the same on every rank
  bootstrap::Limit limit;  // of joining
};

class World {
 public:
  // Returns when all ranks have joined. Errors: TIMEOUT names the ranks that are missing, MISMATCH, REMOTE_ERROR (a
  // rank died or failed while joining), SYSTEM_ERROR, UNSUPPORTED.
  static ncast_status join(const bootstrap::WorldId& id, const WorldOptions& options, std::unique_ptr<World>* world);

  // Leaves. What this rank has put into its lanes stays readable for the peers.
  ~World();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  LaneSender& to(int peer) { return senders_[static_cast<size_t>(peer)]; }
  LaneReceiver& from(int peer) { return receivers_[static_cast<size_t>(peer)]; }
  Doorbell& bell() { return control_->member[rank_].bell; }

  // Ends the calls of every rank with this failure. The first failure of a communicator stays; false if there was one.
  // Any thread.
  bool publish_failure(ncast_status status, const char* sentence);
  // NCAST_OK, or the published failure: ABORTED and MISMATCH as they are, anything else as REMOTE_ERROR.
  ncast_status check_failure() const;

  // What this rank is doing, for peers that wait for it.
  void enter_call() { control_->member[rank_].in_call.store(1, std::memory_order_seq_cst); }
  void leave_call() { control_->member[rank_].in_call.store(0, std::memory_order_seq_cst); }
  void post(const Tag& tag);
  bool in_call(int peer) const { return control_->member[peer].in_call.load(std::memory_order_seq_cst) != 0; }
  // False when the peer has posted nothing or is posting right now.
  bool posted_by(int peer, Tag* tag) const;

  RankSet left() const;  // have destroyed their communicator
  RankSet dead() const;  // have ended without; asks the kernel about each, some 10 us a rank
  int64_t pid_of(int peer) const { return control_->owners.owner[peer].process.pid; }

 private:
  World(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  ncast_status create_or_open(const std::string& name, const WorldOptions& options);
  ncast_status create(const std::string& name, const WorldOptions& options, bool* taken);
  ncast_status enter(const std::string& name, const WorldOptions& options);
  ncast_status wait_for_all(bootstrap::Limit limit);
  std::string missing_ranks() const;
  void make_lane_ends(const WorldOptions& options);
  void ring_all();

  int rank_;
  int ranks_;
  bool created_ = false;
  bool joined_ = false;
  bootstrap::SharedMemory memory_;
  ControlBlock* control_ = nullptr;
  std::vector<LaneSender> senders_;
  std::vector<LaneReceiver> receivers_;
};

}  // namespace narrowcast::channel
