// Ranks join over TCP and exchange blobs.
#include <dirent.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "rendezvous_ranks.h"

namespace narrowcast::testing {
namespace {

// Runs `rounds` all_gathers of blobs of varying sizes. Their content depends on the rank and the round.
void gather_rounds(Rendezvous& rendezvous, int rounds, size_t largest) {
  const auto ranks = static_cast<size_t>(rendezvous.ranks());
  for (int round = 0; round < rounds; ++round) {
    const size_t bytes = round * 977 % (largest + 1);
    const auto value = [&](size_t rank) { return static_cast<unsigned char>(rank * 31 + size_t(round) * 7); };
    const std::vector<unsigned char> mine(bytes, value(static_cast<size_t>(rendezvous.rank())));
    std::vector<unsigned char> all(bytes * ranks);
    EXPECT_OK(rendezvous.all_gather(mine.data(), bytes, all.data()));
    for (size_t i = 0; i < all.size(); ++i) EXPECT(all[i] == value(i / bytes));
  }
}

TEST_CASE("every process receives all blobs in rank order") {
  for (const int ranks : {1, 2, 5, 8}) {
    CAPTURE(ranks);
    const HubProcess hub;
    run_processes(ranks, [&](int rank) {
      const auto rendezvous = hub->must_join(rank, ranks);
      gather_rounds(*rendezvous, 30, 5000);
      EXPECT_OK(rendezvous->barrier());
      EXPECT_OK(rendezvous->check_failure());
    });
  }
}

TEST_CASE("every thread receives all blobs in rank order") {
  for (const int ranks : {1, 2, 5, 8}) {
    CAPTURE(ranks);
    run_threads_with_hub(ranks, [&](const HubAddress& hub, int rank) {
      const auto rendezvous = hub.must_join(rank, ranks);
      gather_rounds(*rendezvous, 30, 5000);
    });
  }
}

TEST_CASE("any two ranks exchange blobs, in an order of their own") {
  constexpr int ranks = 5;
  const HubProcess hub;
  run_processes(ranks, [&](int rank) {
    const auto rendezvous = hub->must_join(rank, ranks);
    const auto bytes_of = [](int round) {
      return static_cast<size_t>(round) * 1031 % (Rendezvous::max_pair_bytes + 1);
    };
    const auto value = [](int from, int to, int round) { return static_cast<char>(from * 50 + to * 7 + round); };
    // A thread for each peer, because ranks visit the others in different orders.
    run_threads(ranks, [&](int peer) {
      for (int round = 0; peer != rank && round < 40; ++round) {
        const std::vector<char> mine(bytes_of(round), value(rank, peer, round));
        std::vector<char> theirs(mine.size());
        EXPECT_OK(rendezvous->exchange_with(peer, mine.data(), mine.size(), theirs.data()));
        EXPECT(theirs == std::vector<char>(mine.size(), value(peer, rank, round)));
      }
    });
    gather_rounds(*rendezvous, 3, 100);
  });
}

TEST_CASE("a barrier returns when all ranks have arrived") {
  std::atomic<int> arrived{0};
  run_threads_with_hub(3, [&](const HubAddress& hub, int rank) {
    const auto rendezvous = hub.must_join(rank, 3);
    for (int round = 1; round <= 20; ++round) {
      if (rank == round % 3) usleep(2000);
      arrived.fetch_add(1);
      EXPECT_OK(rendezvous->barrier());
      EXPECT(arrived.load() >= 3 * round);
    }
  });
}

TEST_CASE("blobs above the limit are rejected") {
  const HubProcess hub;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->must_join(rank, 3);
    const size_t bytes = Rendezvous::max_round_bytes / 3;
    std::vector<char> mine(bytes + 1, static_cast<char>('a' + rank));
    std::vector<char> all(3 * bytes);
    EXPECT(rendezvous->all_gather(mine.data(), bytes + 1, all.data()) == NCAST_INVALID_ARGUMENT);
    EXPECT(rendezvous->all_gather(mine.data(), SIZE_MAX, all.data()) == NCAST_INVALID_ARGUMENT);
    EXPECT_OK(rendezvous->all_gather(mine.data(), bytes, all.data()));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT(all[i * bytes] == static_cast<char>('a' + i));
      EXPECT(std::memcmp(&all[i * bytes], &all[i * bytes + 1], bytes - 1) == 0);
    }
  });
}

TEST_CASE("a rank exchanges blobs only with others, and short ones") {
  run_threads_with_hub(2, [&](const HubAddress& hub, int rank) {
    const auto rendezvous = hub.must_join(rank, 2);
    const std::vector<char> blob(Rendezvous::max_pair_bytes + 1);
    std::vector<char> other(blob.size());
    for (const int peer : {-1, rank, 2})
      EXPECT(rendezvous->exchange_with(peer, blob.data(), 1, other.data()) == NCAST_INVALID_ARGUMENT);
    EXPECT(rendezvous->exchange_with(1 - rank, blob.data(), blob.size(), other.data()) == NCAST_INVALID_ARGUMENT);
    EXPECT_OK(rendezvous->exchange_with(1 - rank, blob.data(), blob.size() - 1, other.data()));
  });
}

TEST_CASE("many rendezvous run concurrently") {
  run_process([] {
    constexpr int communicators = 4, ranks = 3;
    std::vector<HubAddress> hubs;
    for (int i = 0; i < communicators; ++i) hubs.push_back(HubAddress::start_hub());
    run_threads(communicators * ranks, [&](int i) {
      const auto rendezvous = hubs[static_cast<size_t>(i % communicators)].must_join(i / communicators, ranks);
      gather_rounds(*rendezvous, 20, 3000);
    });
  });
}

TEST_CASE("a rendezvous leaves no descriptors open") {
  run_process([] {
    const auto free_descriptor = [] {
      const int descriptor = dup(0);
      close(descriptor);
      return descriptor;
    };
    const auto connect_and_leave = [] {
      const HubAddress hub = HubAddress::start_hub();
      run_threads(2, [&](int rank) { EXPECT_OK(hub.must_join(rank, 2)->check_failure()); });
      // The hub's thread ends soon after the last rank.
      while (bootstrap::is_hub_running(hub.secret)) usleep(1000);
    };
    connect_and_leave();
    const int before = free_descriptor();
    for (int i = 0; i < 5; ++i) connect_and_leave();
    EXPECT(free_descriptor() == before);
  });
}

TEST_CASE("ranks may join late and in any order") {
  const HubProcess hub;
  run_processes(4, [&](int rank) {
    usleep(static_cast<useconds_t>(4 - rank) * 30000);
    gather_rounds(*hub->must_join(rank, 4), 3, 100);
  });
}

TEST_CASE("an unused hub does not keep its process from exiting") {
  const auto start = Clock::now();
  const pid_t pid = start_process([] {
    HubAddress::start_hub();
    std::exit(7);
  });
  CHECK(wait_for_process(pid) == 7);
  CHECK(seconds_since(start) < 10);
}

TEST_CASE("an unused hub ends at its time limit") {
  run_process([] {
    HubAddress hub = {};
    EXPECT(bootstrap::open_rendezvous(hub.secret, {0.1}, bootstrap::Reach::anywhere, &hub.address) == NCAST_OK);
    const TimeLimit limit;
    while (bootstrap::is_hub_running(hub.secret)) usleep(1000);
    std::unique_ptr<Rendezvous> rendezvous;
    EXPECT(hub.join(0, 1, &rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("nothing listens at "));
  });
}

TEST_CASE("an unused hub can be closed") {
  run_process([] {
    const TimeLimit limit;
    bootstrap::close_unused_rendezvous({});  // no hub has this secret
    const HubAddress other = HubAddress::start_hub();
    HubAddress hub = {};
    EXPECT_OK(bootstrap::random_bytes(&hub.secret, sizeof hub.secret));
    EXPECT_OK(bootstrap::open_rendezvous(hub.secret, {3600}, bootstrap::Reach::anywhere, &hub.address));
    const auto start = Clock::now();
    bootstrap::close_unused_rendezvous(hub.secret);
    while (bootstrap::is_hub_running(hub.secret)) usleep(1000);
    EXPECT(seconds_since(start) < 5);
    bootstrap::close_unused_rendezvous(hub.secret);
    EXPECT(bootstrap::is_hub_running(other.secret));
  });
}

// The number of entries of a folder of /proc/self.
int count_of(const char* folder) {
  DIR* listing = opendir(folder);
  EXPECT(listing != nullptr);
  int count = 0;
  while (readdir(listing) != nullptr) ++count;
  closedir(listing);
  return count;
}

TEST_CASE("hubs that no rank has joined share one thread and one listener") {
  run_process([] {
    const HubAddress first = HubAddress::start_hub();
    const int threads = count_of("/proc/self/task"), descriptors = count_of("/proc/self/fd");
    std::vector<HubAddress> hubs;
    for (int i = 0; i < 200; ++i) hubs.push_back(HubAddress::start_hub());
    EXPECT(count_of("/proc/self/task") == threads);
    EXPECT(count_of("/proc/self/fd") == descriptors);
    for (const HubAddress& hub : {hubs[0], hubs[199], first})
      run_threads(2, [&](int rank) { gather_rounds(*hub.must_join(rank, 2), 2, 100); });
  });
}

TEST_CASE("a hub rejects the secret of another hub") {
  run_process([] {
    const HubAddress one = HubAddress::start_hub(), other = HubAddress::start_hub();
    EXPECT(one.address.port == other.address.port);
    run_threads(2, [&](int rank) {
      const HubAddress& hub = rank == 0 ? one : other;
      std::unique_ptr<Rendezvous> rendezvous;
      EXPECT(hub.join(0, 2, &rendezvous, 0.2) == NCAST_TIMEOUT);
      EXPECT(error_contains("not joined: 1 (of 2)"));
    });
    HubAddress unknown = one;
    unknown.secret[0] ^= 1;
    std::unique_ptr<Rendezvous> rendezvous;
    EXPECT(unknown.join(0, 2, &rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("does not know the id"));
  });
}

TEST_CASE("hubs of local ranks listen on loopback only") {
  run_process([] {
    unsetenv("NARROWCAST_SOCKET_IFNAME");
    HubAddress hub = {};
    EXPECT_OK(bootstrap::open_rendezvous(hub.secret, {0}, bootstrap::Reach::local, &hub.address));
    EXPECT(hub.address.text().starts_with("127."));
    run_threads(2, [&](int rank) { hub.must_join(rank, 2); });
  });
}

TEST_CASE("a forked child starts its own hubs") {
  run_process([] {
    const HubAddress hub = HubAddress::start_hub();
    CHECK(wait_for_process(start_process([&] {
            EXPECT(!bootstrap::is_hub_running(hub.secret));
            HubAddress::start_hub().must_join(0, 1);
          })) == 0);
    hub.must_join(0, 1);
  });
}

TEST_CASE("a hub that a rank has joined is not closed") {
  run_threads_with_hub(2, [](const HubAddress& hub, int rank) {
    if (rank == 1) {
      usleep(100000);
      bootstrap::close_unused_rendezvous(hub.secret);
      usleep(100000);
    }
    gather_rounds(*hub.must_join(rank, 2), 3, 100);
  });
}

TEST_CASE("interfaces are named as for NCCL") {
  std::vector<bootstrap::InterfaceAddress> all;
  REQUIRE(bootstrap::listening_addresses(bootstrap::Reach::anywhere, "", &all) == NCAST_OK);
  const auto listed = [](const char* interfaces) {
    std::vector<bootstrap::InterfaceAddress> some;
    if (bootstrap::listening_addresses(bootstrap::Reach::anywhere, interfaces, &some) != NCAST_OK) return size_t{0};
    return some.size();
  };
  const size_t loopback = listed("=lo");
  CHECK(loopback > 0);
  CHECK(listed("l") >= loopback);
  CHECK(listed("=l") == 0);
  CHECK(listed("nosuch,=lo") == 0);  // the sign is about the whole list
  CHECK(listed("nosuch,lo") == loopback);
  CHECK(listed("=nosuch,lo") == loopback);
  CHECK(listed("^=lo") == all.size() - loopback);
  CHECK(listed("^=nosuch,lo") == all.size() - loopback);
  CHECK(listed("^nosuch") == all.size());
  CHECK(listed("^") == all.size());
  CHECK(listed(",") == 0);
}

TEST_CASE("the interface can be chosen by a prefix of its name") {
  run_process([] {
    setenv("NARROWCAST_SOCKET_IFNAME", "lo", 1);
    const HubAddress hub = HubAddress::start_hub();
    EXPECT(hub.address.text().starts_with("127.0.0.1:"));
    hub.must_join(0, 1);
    setenv("NARROWCAST_SOCKET_IFNAME", "nosuch", 1);
    bootstrap::TcpAddress address;
    EXPECT(bootstrap::open_rendezvous({}, {0}, bootstrap::Reach::anywhere, &address) == NCAST_SYSTEM_ERROR);
    EXPECT(error_contains("no interface is up that 'nosuch' names"));
  });
}

TEST_CASE("an IPv6 address keeps its port and scope") {
  sockaddr_in6 made = {};
  made.sin6_family = AF_INET6;
  made.sin6_port = htons(4242);
  made.sin6_scope_id = 3;
  made.sin6_addr = in6addr_loopback;
  const auto address = bootstrap::TcpAddress::from(reinterpret_cast<sockaddr*>(&made));
  CHECK(address.text() == "[::1]:4242");
  sockaddr_storage storage;
  REQUIRE(address.socket_address(&storage) == sizeof made);
  CHECK(std::memcmp(&storage, &made, sizeof made) == 0);
}

TEST_CASE("invalid arguments are rejected") {
  const HubAddress nowhere = {};
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(nowhere.join(0, 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("no address"));
  CHECK(nowhere.join(1, 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
  CHECK(nowhere.join(-1, 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
  CHECK(nowhere.join(0, Rendezvous::max_ranks + 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::testing
