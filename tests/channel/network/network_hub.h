// Where ranks on several hosts meet.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/shared_memory.h"
#include "bootstrap/tcp_hub_server.h"
#include "bootstrap/tcp_rendezvous.h"
#include "channel/network/network_world.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {

inline constexpr channel::RingShape network_shape = {3, 128};

// In a process of its own: ranks are processes that are forked from that of the test. If this had the thread of a hub,
// which may allocate memory at that moment, the ranks could inherit a locked allocator from AddressSanitizer.
struct NetworkHub {
  bootstrap::WorldId secret;
  bootstrap::TcpAddress address;

  NetworkHub() {
    REQUIRE(bootstrap::random_bytes(&secret, sizeof secret) == NCAST_OK);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const auto serve = [&] {
      EXPECT_OK(bootstrap::open_rendezvous(secret, {0}, bootstrap::Reach::anywhere, &address));
      EXPECT(write(ends[1], &address, sizeof address) == sizeof address);
      close(ends[1]);
      pause();
    };
    process_ = start_process(serve, 10 * default_seconds);
    close(ends[1]);
    const ssize_t bytes = read(ends[0], &address, sizeof address);
    close(ends[0]);
    REQUIRE(bytes == sizeof address);
  }
  ~NetworkHub() {
    kill(process_, SIGKILL);
    wait_for_process(process_);
  }
  NetworkHub(const NetworkHub&) = delete;
  NetworkHub& operator=(const NetworkHub&) = delete;

  // host: any number; by default every rank is on a host of its own.
  ncast_status join(int rank, int ranks, std::unique_ptr<channel::World>* world, uint64_t setting = 1,
                    int host = -1) const {
    channel::WorldOptions options{rank, ranks, network_shape, {30}};
    options.host = static_cast<uint64_t>(host < 0 ? 100 + rank : host);
    EXPECT_OK(options.settings.add("scratch_bytes", setting));
    std::unique_ptr<bootstrap::Rendezvous> rendezvous;
    if (ncast_status status = bootstrap::TcpRendezvous::join(address, secret, rank, ranks, options.limit, &rendezvous))
      return status;
    return channel::NetworkWorld::join(*rendezvous, secret, options, world);
  }
  std::unique_ptr<channel::World> must_join(int rank, int ranks, int host = -1) const {
    std::unique_ptr<channel::World> world;
    EXPECT_OK(join(rank, ranks, &world, 1, host));
    return world;
  }

 private:
  pid_t process_ = -1;
};

// Calls done() whenever something changes at this rank, until it returns true.
inline void wait_until(channel::World& world, const std::function<bool()>& done) {
  for (;;) {
    const uint32_t seen = world.bell().epoch();
    if (done()) return;
    world.bell().wait(seen, std::chrono::milliseconds(50));
  }
}

using Variables = std::vector<std::pair<const char*, std::string>>;

// Runs a process for each list of variables: a process loads one plugin.
inline void run_with(const std::vector<Variables>& by_rank, const std::function<void(int rank)>& body) {
  run_processes(static_cast<int>(by_rank.size()), [&](int rank) {
    for (const char* const name : {"NARROWCAST_NET", "NCCL_NET_PLUGIN", "NCCL_NET"}) unsetenv(name);
    for (const auto& [name, value] : by_rank[static_cast<size_t>(rank)]) setenv(name, value.c_str(), 1);
    body(rank);
  });
}

inline void expect_failure(const Variables& first, const Variables& second, ncast_status status,
                           const std::vector<const char*>& texts) {
  const NetworkHub hub;
  run_with({first, second}, [&](int rank) {
    std::unique_ptr<channel::World> world;
    EXPECT(hub.join(rank, 2, &world) == status);
    for (const char* const text : texts) EXPECT(error_contains(text));
  });
}

}  // namespace narrowcast::testing
