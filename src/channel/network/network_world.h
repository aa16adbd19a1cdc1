// The world of ranks on several hosts: those of one host share memory, and each has a connection to every rank of
// another host, over which both keep copies of what they would share.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/world_id.h"
#include "channel/host/shared_world.h"
#include "channel/network/introduction.h"
#include "channel/network/link.h"
#include "channel/network/stream.h"

namespace narrowcast::channel {

class NetworkWorld final : public SharedWorld {
 public:
  // Connects the ranks of a rendezvous. Returns when all are connected. Errors: TIMEOUT (names a missing rank),
  // MISMATCH, REMOTE_ERROR (a rank died or failed while joining), SYSTEM_ERROR.
  static ncast_status join(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                           const WorldOptions& options, std::unique_ptr<World>* world);
  // Waits at most a second for each peer to receive what was sent.
  ~NetworkWorld() override;

  ncast_status add_region(size_t bytes, bootstrap::SharedRange* region) override;
  RankSet dead() const override;
  ncast_status fail_of_dead(int peer) const override;
  std::string name_of(int peer) const override { return introductions_.names[static_cast<size_t>(peer)]; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  NetworkWorld(int rank, int ranks) : SharedWorld(rank, ranks) {}
  ncast_status connect(bootstrap::Rendezvous& rendezvous, const bootstrap::WorldId& secret,
                       const WorldOptions& options);
  ncast_status introduce(bootstrap::Rendezvous& rendezvous, const WorldOptions& options);
  ncast_status make_links(Streams streams, const WorldOptions& options);
  const Link* link_to(int peer) const;

  Introductions introductions_;
  const std::unique_ptr<ControlBlock> remote_ = std::make_unique<ControlBlock>();  // the state of ranks of other hosts
  std::unique_ptr<void, Free> rings_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer; NULL for ranks of this host
};

}  // namespace narrowcast::channel
