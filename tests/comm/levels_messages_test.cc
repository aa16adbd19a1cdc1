// Messages between ranks of two levels that are threads of one process. tests/python/test_levels.py has processes.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "support/environment.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

constexpr int ranks = 9;  // 3 groups of 3

// Creates a communicator of two levels in each of `ranks` threads of a child process.
void run_levels(const std::function<void(ncast_comm* comm, int rank)>& body) {
  const pid_t child = start_process([&] {
    const Environment network("NARROWCAST_SOCKET_IFNAME", "lo"), levels("NARROWCAST_LEVELS", "2");
    const ncast_unique_id id = new_id();
    run_threads(ranks, [&](int rank) {
      const Comm comm(id, rank, ranks);
      body(comm, rank);
    });
  });
  CHECK(wait_for_process(child) == 0);
}

// The messages of a group: from each rank to every rank, in an order of its own.
void exchange(ncast_comm* comm, int rank, size_t count, uint32_t seed) {
  std::vector<std::vector<int32_t>> sent, received(ranks, std::vector<int32_t>(count));
  for (int peer = 0; peer < ranks; ++peer) sent.emplace_back(count, rank * 100 + peer);
  std::vector<int> calls(2 * ranks);  // receives, then sends
  std::iota(calls.begin(), calls.end(), 0);
  std::ranges::shuffle(calls, std::mt19937(seed));
  EXPECT_OK(ncast_group_start());
  for (const int call : calls) {
    const int peer = call % ranks;
    void* const values = received[static_cast<size_t>(peer)].data();
    if (call < ranks)
      EXPECT_OK(ncast_recv(values, count, NCAST_INT32, peer, NCAST_CODEC_RAW, comm, nullptr));
    else
      EXPECT_OK(
          ncast_send(sent[static_cast<size_t>(peer)].data(), count, NCAST_INT32, peer, NCAST_CODEC_RAW, comm, nullptr));
  }
  EXPECT_OK(ncast_group_end());
  for (int peer = 0; peer < ranks; ++peer)
    EXPECT(received[static_cast<size_t>(peer)] == std::vector<int32_t>(count, peer * 100 + rank));
}

TEST_CASE("threads exchange messages with all others, in any order") {
  run_levels([](ncast_comm* comm, int rank) {
    for (uint32_t round = 0; round < 4; ++round)
      exchange(comm, rank, round == 0 ? 1 : 100'000, 10 * round + static_cast<uint32_t>(rank));
  });
}

TEST_CASE("several threads of a rank make the first message to the same peer") {
  run_levels([](ncast_comm* comm, int rank) {
    constexpr int threads = 3;
    const int peer = rank == 0 ? 4 : rank == 4 ? 0 : -1;
    if (peer < 0) return;
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([comm, rank, peer] {
        int32_t received = -1;
        EXPECT_OK(ncast_group_start());
        EXPECT_OK(ncast_send(&rank, 1, NCAST_INT32, peer, NCAST_CODEC_RAW, comm, nullptr));
        EXPECT_OK(ncast_recv(&received, 1, NCAST_INT32, peer, NCAST_CODEC_RAW, comm, nullptr));
        EXPECT_OK(ncast_group_end());
        EXPECT(received == peer);
      });
    }
  });
}

TEST_CASE("an abort during messages ends them on all ranks") {
  for (const int microseconds : {0, 1000, 10'000, 50'000}) {
    CAPTURE(microseconds);
    run_levels([=](ncast_comm* comm, int rank) {
      std::jthread aborting;
      if (rank == 5)
        aborting = std::jthread([=] {
          usleep(static_cast<useconds_t>(microseconds));
          EXPECT_OK(ncast_comm_abort(comm));
        });
      int32_t sent[ranks] = {}, received[ranks];
      ncast_status status = NCAST_OK;
      while (status == NCAST_OK) {
        EXPECT_OK(ncast_group_start());
        for (int peer = 0; peer < ranks; ++peer) {
          ncast_send(&sent[peer], 1, NCAST_INT32, peer, NCAST_CODEC_RAW, comm, nullptr);
          ncast_recv(&received[peer], 1, NCAST_INT32, peer, NCAST_CODEC_RAW, comm, nullptr);
        }
        status = ncast_group_end();
      }
      EXPECT(status == NCAST_ABORTED);
    });
  }
}

TEST_CASE("the parts of all_to_all_v may be empty") {
  run_levels([](ncast_comm* comm, int rank) {
    // A rank sends r values to those r further, of its own and all others.
    std::vector<uint64_t> send_counts(ranks), recv_counts(ranks), send_offsets(ranks), recv_offsets(ranks);
    std::vector<int32_t> sent, received, right;
    for (int peer = 0; peer < ranks; ++peer) {
      const int to = (peer - rank + ranks) % ranks, from = (rank - peer + ranks) % ranks;
      send_counts[static_cast<size_t>(peer)] = static_cast<uint64_t>(to);
      recv_counts[static_cast<size_t>(peer)] = static_cast<uint64_t>(from);
      send_offsets[static_cast<size_t>(peer)] = sent.size();
      recv_offsets[static_cast<size_t>(peer)] = right.size();
      sent.insert(sent.end(), static_cast<size_t>(to), static_cast<int32_t>(rank * 10 + peer));
      right.insert(right.end(), static_cast<size_t>(from), static_cast<int32_t>(peer * 10 + rank));
    }
    received.resize(right.size());
    EXPECT_OK(ncast_all_to_all_v(sent.data(), send_counts.data(), send_offsets.data(), received.data(),
                                 recv_counts.data(), recv_offsets.data(), NCAST_INT32, NCAST_CODEC_RAW, comm, nullptr));
    EXPECT(received == right);
    // Nobody sends anything.
    const std::vector<uint64_t> none(ranks);
    EXPECT_OK(ncast_all_to_all_v(nullptr, none.data(), none.data(), nullptr, none.data(), none.data(), NCAST_INT32,
                                 NCAST_CODEC_RAW, comm, nullptr));
  });
}

}  // namespace
}  // namespace narrowcast::testing
