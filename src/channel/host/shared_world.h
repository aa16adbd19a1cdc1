// The world of ranks of one host: everything is in one segment of shared memory. It is also the part of a world of
// several hosts that is on this host.
#pragma once

#include <bit>

#include "bootstrap/rendezvous.h"
#include "bootstrap/world_id.h"
#include "channel/host/world.h"

namespace narrowcast::channel {

// The name of a world's segment until all ranks have joined. It does not reveal the id.
std::string segment_name(const bootstrap::WorldId& id);

class SharedWorld : public World {
 public:
  // Returns when all ranks have joined. Errors: TIMEOUT (names the missing ranks), MISMATCH, REMOTE_ERROR (a rank died
  // or failed while joining), SYSTEM_ERROR, UNSUPPORTED. Ranks that come after a failure get it too, for ten minutes.
  static ncast_status join(const bootstrap::WorldId& id, const WorldOptions& options, std::unique_ptr<World>* world);
  // For a rank that failed before it could join: the other ranks do not wait for it. Its message is the last error.
  static void decline(const bootstrap::WorldId& id, int rank, ncast_status status);
  ~SharedWorld() override;

  ncast_status add_region(size_t bytes, bootstrap::SharedRange* region) override;
  RankSet dead() const override;  // costs a system call per rank, about 10 us
  ncast_status fail_of_dead(int peer) const override;
  std::string name_of(int peer) const override;

 protected:
  SharedWorld(int rank, int ranks) : World(rank, ranks), local_(all_ranks()) {}

  // Joins the segment of the ranks `local`, of which this rank is one. rendezvous: where all ranks meet, if there are
  // others: it tells them of failures. It is used until this returns.
  ncast_status join_segment(const bootstrap::WorldId& id, RankSet local, bootstrap::Rendezvous* rendezvous,
                            const WorldOptions& options);
  // Tells the ranks of this host that this rank leaves, and wakes all peers. Once.
  void leave();
  bool is_local(int peer) const { return (local_ & rank_bit(peer)) != 0; }
  // From one rank of this host to another.
  void* ring(int from, int to, const RingShape& shape) const;

 private:
  struct Deadline {
    bootstrap::Limit limit;
    bootstrap::Clock::time_point start;
  };

  ncast_status meet(const WorldOptions& options);
  void give_up(ncast_status status);
  ncast_status check_others() const;
  int local_ranks() const { return std::popcount(local_); }
  SegmentLayout layout(const RingShape& shape) const { return {static_cast<uint64_t>(local_ranks()), shape}; }
  uint64_t place_of(int rank) const { return static_cast<uint64_t>(std::popcount(local_ & (rank_bit(rank) - 1))); }
  ncast_status create_or_open(const WorldOptions& options);
  ncast_status create(const std::string& name, const WorldOptions& options, bool* taken);
  ncast_status enter(const WorldOptions& options);
  // arrived: the ranks that are not missing.
  template <typename Done>
  ncast_status wait_for_all(Done done, const std::atomic<RankSet>& arrived, const Deadline& deadline);
  std::string missing_ranks(RankSet arrived) const;
  ncast_status allocate_rings(const WorldOptions& options);

  bootstrap::WorldId id_ = {};
  RankSet local_;
  bootstrap::Rendezvous* rendezvous_ = nullptr;
  bool created_ = false;
  bool joined_ = false;
  bootstrap::SharedMemory memory_;
  uint64_t end_bytes_ = 0;  // where the next region begins
};

}  // namespace narrowcast::channel
