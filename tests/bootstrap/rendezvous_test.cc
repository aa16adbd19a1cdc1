// Ranks that meet over TCP and exchange blobs.
#include <netinet/in.h>

#include <cstring>
#include <vector>

#include "rendezvous_ranks.h"

namespace narrowcast::testing {
namespace {

// Gathers blobs that tell rank and round, `rounds` times, of changing sizes.
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

TEST_CASE("EveryProcessReceivesTheBlobsOfAllInRankOrder") {
  for (const int ranks : {1, 2, 5, 8}) {
    CAPTURE(ranks);
    const HubProcess hub;
    run_processes(ranks, [&](int rank) {
      const auto rendezvous = hub->joined(rank, ranks);
      gather_rounds(*rendezvous, 30, 5000);
      EXPECT_OK(rendezvous->barrier());
      EXPECT_OK(rendezvous->check_failure());
    });
  }
}

TEST_CASE("EveryThreadReceivesTheBlobsOfAllInRankOrder") {
  for (const int ranks : {1, 2, 5, 8}) {
    CAPTURE(ranks);
    run_threads_with_hub(ranks, [&](const Meeting& meeting, int rank) {
      const auto rendezvous = meeting.joined(rank, ranks);
      gather_rounds(*rendezvous, 30, 5000);
    });
  }
}

TEST_CASE("ABarrierEndsWhenAllHaveCome") {
  std::atomic<int> came{0};
  run_threads_with_hub(3, [&](const Meeting& meeting, int rank) {
    const auto rendezvous = meeting.joined(rank, 3);
    for (int round = 1; round <= 20; ++round) {
      if (rank == round % 3) usleep(2000);
      came.fetch_add(1);
      EXPECT_OK(rendezvous->barrier());
      EXPECT(came.load() >= 3 * round);
    }
  });
}

TEST_CASE("BlobsMayBeLargeAndNotTooLarge") {
  const HubProcess hub;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->joined(rank, 3);
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

TEST_CASE("ManyRendezvousRunSideBySide") {
  run_process([] {
    constexpr int meetings = 4, ranks = 3;
    std::vector<Meeting> meeting;
    for (int i = 0; i < meetings; ++i) meeting.push_back(Meeting::open());
    run_threads(meetings * ranks, [&](int i) {
      const auto rendezvous = meeting[static_cast<size_t>(i % meetings)].joined(i / meetings, ranks);
      gather_rounds(*rendezvous, 20, 3000);
    });
  });
}

TEST_CASE("OneMeetingAfterTheOtherLeavesNoDescriptorsOpen") {
  run_process([] {
    const auto free_descriptor = [] {
      const int descriptor = dup(0);
      close(descriptor);
      return descriptor;
    };
    const auto meet = [] {
      const Meeting meeting = Meeting::open();
      run_threads(2, [&](int rank) { EXPECT_OK(meeting.joined(rank, 2)->check_failure()); });
      // The hub's thread ends soon after the last rank.
      while (bootstrap::is_hub_here(meeting.secret)) usleep(1000);
    };
    meet();
    const int before = free_descriptor();
    for (int i = 0; i < 5; ++i) meet();
    EXPECT(free_descriptor() == before);
  });
}

TEST_CASE("RanksMayComeLateAndInAnyOrder") {
  const HubProcess hub;
  run_processes(4, [&](int rank) {
    usleep(static_cast<useconds_t>(4 - rank) * 30000);
    gather_rounds(*hub->joined(rank, 4), 3, 100);
  });
}

TEST_CASE("AHubThatNobodyJoinsDoesNotKeepItsProcess") {
  const auto start = Clock::now();
  const pid_t pid = start_process([] {
    Meeting::open();
    std::exit(7);
  });
  CHECK(wait_for_process(pid) == 7);
  CHECK(seconds_since(start) < 10);
}

TEST_CASE("AHubThatNobodyJoinsEndsAtItsLimit") {
  run_process([] {
    Meeting meeting = {};
    EXPECT(bootstrap::open_rendezvous(meeting.secret, {0.1}, &meeting.address) == NCAST_OK);
    const TimeLimit limit;
    while (bootstrap::is_hub_here(meeting.secret)) usleep(1000);
    std::unique_ptr<Rendezvous> rendezvous;
    EXPECT(meeting.join(0, 1, &rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(sentence_has("nobody listens at "));
  });
}

TEST_CASE("AHubThatNobodyWillJoinEndsWhenThatIsSaid") {
  run_process([] {
    const TimeLimit limit;
    bootstrap::close_unused_rendezvous({});  // of which there is no hub
    const Meeting other = Meeting::open();
    Meeting meeting = {};
    EXPECT_OK(bootstrap::random_bytes(&meeting.secret, sizeof meeting.secret));
    EXPECT_OK(bootstrap::open_rendezvous(meeting.secret, {3600}, &meeting.address));
    const auto start = Clock::now();
    bootstrap::close_unused_rendezvous(meeting.secret);
    while (bootstrap::is_hub_here(meeting.secret)) usleep(1000);
    EXPECT(seconds_since(start) < 5);
    bootstrap::close_unused_rendezvous(meeting.secret);
    EXPECT(bootstrap::is_hub_here(other.secret));
  });
}

TEST_CASE("AHubThatARankHasJoinedStaysThough") {
  run_threads_with_hub(2, [](const Meeting& meeting, int rank) {
    if (rank == 1) {
      usleep(100000);
      bootstrap::close_unused_rendezvous(meeting.secret);
      usleep(100000);
    }
    gather_rounds(*meeting.joined(rank, 2), 3, 100);
  });
}

TEST_CASE("TheInterfaceCanBeChosenByThePrefixOfItsName") {
  run_process([] {
    setenv("NARROWCAST_SOCKET_IFNAME", "lo", 1);
    const Meeting meeting = Meeting::open();
    EXPECT(meeting.address.text().starts_with("127.0.0.1:"));
    meeting.joined(0, 1);
    setenv("NARROWCAST_SOCKET_IFNAME", "nosuch", 1);
    bootstrap::TcpAddress address;
    EXPECT(bootstrap::open_rendezvous({}, {0}, &address) == NCAST_SYSTEM_ERROR);
    EXPECT(sentence_has("NARROWCAST_SOCKET_IFNAME is 'nosuch'"));
  });
}

TEST_CASE("AnAddressOfIPv6IsCarriedWhole") {
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

TEST_CASE("ArgumentsThatCannotBeAreRefused") {
  const Meeting nowhere = {};
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(nowhere.join(0, 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
  CHECK(sentence_has("no address"));
  CHECK(nowhere.join(1, 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
  CHECK(nowhere.join(-1, 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
  CHECK(nowhere.join(0, Rendezvous::max_ranks + 1, &rendezvous) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace narrowcast::testing
