// Ranks that are connected by TCP, as on several hosts: in threads of this process, and in processes.
#include "channel/network/network_world.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/tcp_rendezvous.h"
#include "channel/network/meeting.h"
#include "network_hub.h"
#include "status/error.h"
#include "support/last_error.h"
#include "support/listening_places.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace channel;

Tag tag_of(int rank, uint64_t number) {
  Tag tag = {};
  std::memcpy(tag.bytes, &rank, sizeof rank);
  std::memcpy(tag.bytes + 8, &number, sizeof number);
  return tag;
}
bool is_same(const Tag& a, const Tag& b) { return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0; }

uint64_t bytes_of(uint64_t number) { return number * 37 % (network_shape.payload_capacity_bytes + 1); }
uint8_t byte_of(int rank, uint64_t number, uint64_t i) {
  return static_cast<uint8_t>(static_cast<uint64_t>(rank) * 101 + number * 13 + i);
}

// Fills the next slot, if there is one.
bool put_slot(World& world, int peer, uint64_t number) {
  const Slot slot = world.to(peer).next_free();
  if (!slot) return false;
  slot.header->tag = tag_of(world.rank(), number);
  slot.header->payload_bytes = bytes_of(number);
  for (uint64_t i = 0; i < bytes_of(number); ++i) slot.payload[i] = std::byte{byte_of(world.rank(), number, i)};
  world.to(peer).put();
  return true;
}
// Checks the next slot, if there is one.
bool take_slot(World& world, int peer, uint64_t number) {
  const Slot slot = world.from(peer).next_filled();
  if (!slot) return false;
  EXPECT(is_same(slot.header->tag, tag_of(peer, number)));
  EXPECT(slot.header->payload_bytes == bytes_of(number));
  for (uint64_t i = 0; i < bytes_of(number); ++i) EXPECT(slot.payload[i] == std::byte{byte_of(peer, number, i)});
  world.from(peer).release();
  return true;
}

// The hosts of ranks.
const std::vector<std::vector<int>> layouts = {{0, 1, 2}, {0, 0, 0, 1}, {0, 1, 0, 2}, {0, 0, 1, 1}, {5, 5, 5}};

void exchange_slots(World& world, uint64_t count) {
  const int ranks = world.ranks();
  std::vector<uint64_t> put(static_cast<size_t>(ranks)), taken = put;
  uint64_t most = 0;  // of the numbers of slots
  wait_until(world, [&] {
    bool done = true;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == world.rank()) continue;
      const auto at = static_cast<size_t>(peer);
      while (put[at] < count) {
        most = std::max(most, put[at]);
        world.publish_current(tag_of(world.rank(), most));
        if (!put_slot(world, peer, put[at])) break;
        ++put[at];
      }
      for (; taken[at] < count; ++taken[at]) {
        if (!world.from(peer).next_filled()) break;
        Tag current;
        uint64_t published = 0;
        while (!world.current_of(peer, &current)) {
        }  // it stores one
        std::memcpy(&published, current.bytes + 8, sizeof published);
        EXPECT(published >= taken[at]);
        EXPECT(take_slot(world, peer, taken[at]));
      }
      done = done && put[at] == count && taken[at] == count;
    }
    return done;
  });
  EXPECT_OK(world.check_failure());
}

TEST_CASE("slots reach every rank in order, and what was published before them is there") {
  for (const std::vector<int>& hosts : layouts) {
    const NetworkHub hub;
    const auto ranks = static_cast<int>(hosts.size());
    run_threads(ranks,
                [&](int rank) { exchange_slots(*hub.must_join(rank, ranks, hosts[static_cast<size_t>(rank)]), 200); });
  }
}

TEST_CASE("a rank that leaves has sent its slots, and counts as left, not as dead") {
  const NetworkHub hub;
  run_threads(2, [&](int rank) {
    std::unique_ptr<World> world = hub.must_join(rank, 2);
    if (rank == 0) {
      for (uint64_t number = 0; number < network_shape.slots; ++number) EXPECT(put_slot(*world, 1, number));
      world.reset();
      return;
    }
    wait_until(*world, [&] { return world->left() == rank_bit(0); });
    usleep(100'000);
    EXPECT(world->dead() == 0);
    for (uint64_t number = 0; number < network_shape.slots; ++number) EXPECT(take_slot(*world, 0, number));
  });
}

TEST_CASE("the states and the failure of a rank are known to all ranks") {
  for (const std::vector<int>& hosts : layouts) {
    const NetworkHub hub;
    const auto ranks = static_cast<int>(hosts.size());
    run_threads(ranks, [&](int rank) {
      const std::unique_ptr<World> world = hub.must_join(rank, ranks, hosts[static_cast<size_t>(rank)]);
      if (rank == 2) {
        world->enter_call();
        world->publish_collective(tag_of(2, 7));
        world->wake_peers();
        wait_until(*world, [&] { return world->in_call(0) && world->in_call(1); });
        EXPECT(world->publish_failure(NCAST_INVALID_ARGUMENT, "bad values"));
      } else {
        wait_until(*world, [&] {
          Tag found;
          return world->in_call(2) && world->collective_of(2, &found) && is_same(found, tag_of(2, 7));
        });
        world->enter_call();
        world->wake_peers();
      }
      wait_until(*world, [&] { return world->check_failure() != NCAST_OK; });
      if (rank != 2) {
        EXPECT(world->check_failure() == NCAST_REMOTE_ERROR);
        EXPECT(error_contains("rank 2 reports: bad values"));
        EXPECT(!world->publish_failure(NCAST_ABORTED, "aborted"));
      }
    });
  }
}

TEST_CASE("a process that dies is reported with its host, by ranks that wait and by those that do not") {
  for (const std::vector<int>& hosts : {std::vector{0, 1, 2}, {0, 1, 1}, {0, 0, 0}}) {
    const NetworkHub hub;
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    // The hub's thread is in this process, so the ranks are processes of their own.
    const auto rank_of = [&](int rank) {
      std::unique_ptr<World> world = hub.must_join(rank, 3, hosts[static_cast<size_t>(rank)]);
      const char joined = 1;
      EXPECT(write(ends[1], &joined, 1) == 1);
      if (rank == 2)
        for (;;) pause();
      wait_until(*world, [&] { return world->dead() != 0; });
      EXPECT(world->dead() == rank_bit(2));
      EXPECT(world->fail_of_dead(2) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("rank 2 (pid "));
      EXPECT(error_contains(" on "));
      EXPECT(error_contains("died"));
    };
    std::array<pid_t, 3> pids;
    for (int rank = 0; rank < 3; ++rank) pids[static_cast<size_t>(rank)] = start_process([&] { rank_of(rank); });
    char joined = 0;
    for (int rank = 0; rank < 3; ++rank) REQUIRE(read(ends[0], &joined, 1) == 1);
    kill(pids[2], SIGKILL);
    for (int rank = 0; rank < 2; ++rank) CHECK(wait_for_process(pids[static_cast<size_t>(rank)]) == 0);
    CHECK(wait_for_process(pids[2]) == -SIGKILL);
    close(ends[0]);
    close(ends[1]);
  }
}

TEST_CASE("a rank that dies while others of its host join is reported by all, and leaves nothing behind") {
  const NetworkHub hub;
  const auto rank_of = [&](int rank) {
    if (rank == 3) {
      // Meets the others, and dies before it joins the segment of its host.
      std::unique_ptr<bootstrap::Rendezvous> rendezvous;
      EXPECT_OK(bootstrap::TcpRendezvous::join(hub.address, hub.secret, rank, 4, {30}, &rendezvous));
      usleep(200'000);
      raise(SIGKILL);
    }
    std::unique_ptr<World> world;
    EXPECT(hub.join(rank, 4, &world, 1, rank / 2) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 3 (pid "));
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; ++rank) pids.push_back(start_process([&] { rank_of(rank); }));
  for (int rank = 0; rank < 3; ++rank) CHECK(wait_for_process(pids[static_cast<size_t>(rank)]) == 0);
  CHECK(wait_for_process(pids[3]) == -SIGKILL);
}

TEST_CASE("hosts are numbered in the order of their first ranks") {
  const NetworkHub hub;
  constexpr std::array<int, 5> hosts = {70, 3, 70, 9, 3};
  constexpr std::array<int, 5> expected = {0, 1, 0, 2, 1};
  run_threads(5, [&](int rank) {
    const std::unique_ptr<World> world = hub.must_join(rank, 5, hosts[static_cast<size_t>(rank)]);
    EXPECT(world->hosts() == 3);
    for (int peer = 0; peer < 5; ++peer) EXPECT(world->host_of(peer) == expected[static_cast<size_t>(peer)]);
  });
}

TEST_CASE("ranks that differ in a setting get a mismatch that names it") {
  const NetworkHub hub;
  run_threads(2, [&](int rank) {
    std::unique_ptr<World> world;
    EXPECT(hub.join(rank, 2, &world, 1 + static_cast<uint64_t>(rank)) == NCAST_MISMATCH);
    EXPECT(error_contains("scratch_bytes"));
  });
}

TEST_CASE("strangers at the ports of ranks are ignored") {
  const NetworkHub hub;
  std::atomic<bool> stop = false;
  std::thread stranger([&] {
    std::vector<int> open;
    for (unsigned turn = 0; !stop; ++turn) {
      for (const sockaddr_storage& place : listening_places()) {
        const int fd = socket(place.ss_family, SOCK_STREAM, 0);
        if (fd < 0) continue;
        if (connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0) {
          char garbage[64];
          std::memset(garbage, static_cast<int>(turn % 256), sizeof garbage);
          if (turn % 3 != 0) static_cast<void>(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL));
        }
        if (open.size() < 40 && turn % 2 == 0) {
          open.push_back(fd);  // stays silent
        } else {
          close(fd);
        }
      }
      usleep(1000);
    }
    for (const int fd : open) close(fd);
  });
  for (int round = 0; round < 3; ++round) {
    const NetworkHub own;
    run_threads(3, [&](int rank) { EXPECT_OK(own.must_join(rank, 3)->check_failure()); });
  }
  stop = true;
  stranger.join();
}

TEST_CASE("a rank that does not know the secret gets no connection") {
  const NetworkHub hub;
  run_threads(2, [&](int rank) {
    std::unique_ptr<bootstrap::Rendezvous> rendezvous;
    EXPECT_OK(bootstrap::TcpRendezvous::join(hub.address, hub.secret, rank, 2, {30}, &rendezvous));
    bootstrap::WorldId secret = hub.secret;
    secret[0] ^= rank == 0 ? 0u : 1u;
    Connections connections;
    const std::vector<std::string> names = {"rank 0", "rank 1"};
    EXPECT(connect_ranks(*rendezvous, secret, {2}, rank_bit(1 - rank), names, &connections) != NCAST_OK);
    EXPECT(connections[static_cast<size_t>(1 - rank)] == nullptr);
  });
}

}  // namespace
}  // namespace narrowcast::testing
