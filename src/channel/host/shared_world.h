// The world of ranks of one host: everything is in one segment of shared memory.
#pragma once

#include "bootstrap/world_id.h"
#include "channel/host/world.h"

namespace narrowcast::channel {

// The name of a world's segment until all ranks have joined. It does not reveal the id.
std::string segment_name(const bootstrap::WorldId& id);

class SharedWorld final : public World {
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

 private:
  SharedWorld(const bootstrap::WorldId& id, int rank, int ranks) : World(rank, ranks), id_(id) {}

  struct Deadline {
    bootstrap::Limit limit;
    bootstrap::Clock::time_point start;
  };

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
  bool created_ = false;
  bool joined_ = false;
  bootstrap::SharedMemory memory_;
  uint64_t end_bytes_ = 0;  // where the next region begins
};

}  // namespace narrowcast::channel
