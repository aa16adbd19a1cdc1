// Where ranks on several hosts meet.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_hub_server.h"
#include "channel/network/network_world.h"
#include "support/ranks.h"

namespace narrowcast::testing {

inline constexpr channel::RingShape network_shape = {3, 128};

struct NetworkHub {
  bootstrap::WorldId secret;
  bootstrap::TcpAddress address;

  NetworkHub() {
    REQUIRE(bootstrap::random_bytes(&secret, sizeof secret) == NCAST_OK);
    REQUIRE(bootstrap::open_rendezvous(secret, {0}, bootstrap::Reach::anywhere, &address) == NCAST_OK);
  }
  // host: any number; by default every rank is on a host of its own.
  ncast_status join(int rank, int ranks, std::unique_ptr<channel::World>* world, uint64_t setting = 1,
                    int host = -1) const {
    channel::WorldOptions options{rank, ranks, network_shape, {30}};
    options.host = static_cast<uint64_t>(host < 0 ? 100 + rank : host);
    EXPECT_OK(options.settings.add("scratch_bytes", setting));
    return channel::NetworkWorld::join(address, secret, options, NCAST_OK, world);
  }
  std::unique_ptr<channel::World> must_join(int rank, int ranks, int host = -1) const {
    std::unique_ptr<channel::World> world;
    EXPECT_OK(join(rank, ranks, &world, 1, host));
    return world;
  }
};

// Calls done() whenever something changes at this rank, until it returns true.
inline void wait_until(channel::World& world, const std::function<bool()>& done) {
  for (;;) {
    const uint32_t seen = world.bell().epoch();
    if (done()) return;
    world.bell().wait(seen, std::chrono::milliseconds(50));
  }
}

}  // namespace narrowcast::testing
