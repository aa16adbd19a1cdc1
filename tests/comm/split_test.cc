// ncast_comm_split.
#include "bootstrap/host.h"
#include "bootstrap/tcp_address.h"
#include "bootstrap/unique_id.h"
#include "executor/backend.h"
#include "failing.h"

namespace narrowcast::testing {
namespace {

TEST_CASE("the ranks of a color form a communicator, ordered by key") {
  const ncast_unique_id id = new_id();
  run_processes(4, [&](int rank) {
    Comm comm(id, rank, 4);
    ncast_comm* part = nullptr;
    EXPECT_OK(ncast_comm_split(comm, rank / 2, -rank, nullptr, &part));
    int own = -1, ranks = 0;
    EXPECT_OK(ncast_comm_rank(part, &own));
    EXPECT_OK(ncast_comm_ranks(part, &ranks));
    EXPECT(own == 1 - rank % 2);
    EXPECT(ranks == 2);
    float value = static_cast<float>(1 << rank);
    EXPECT_OK(ncast_all_reduce(&value, &value, 1, NCAST_FLOAT32, NCAST_SUM, NCAST_CODEC_RAW, part, nullptr));
    EXPECT(value == (rank / 2 == 0 ? 3 : 12));
    EXPECT_OK(ncast_comm_destroy(part));
    EXPECT_OK(reduce_one(comm));
  });
}

TEST_CASE("a rank without a color gets no communicator") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    ncast_comm* part = comm;
    EXPECT_OK(ncast_comm_split(comm, rank == 0 ? NCAST_SPLIT_NOCOLOR : 0, 0, nullptr, &part));
    EXPECT((part == nullptr) == (rank == 0));
    EXPECT_OK(ncast_comm_destroy(part));
  });
}

TEST_CASE("a rank that cannot split fails the others, and the communicator remains usable") {
  const ncast_unique_id id = new_id();
  run_processes(3, [&](int rank) {
    Comm comm(id, rank, 3, {0});
    for (const bool is_invalid : {true, false}) {
      ncast_comm_config config;
      ncast_comm_config_init(&config);
      config.timeout_seconds = is_invalid && rank == 2 ? -1 : 0;
      if (!is_invalid && rank == 1) config.cost_model = "/nonexistent/file";  // found only when its part is created
      ncast_comm* part = nullptr;
      EXPECT(ncast_comm_split(comm, 0, 0, &config, &part) ==
             (rank == (is_invalid ? 2 : 1) ? NCAST_INVALID_ARGUMENT : NCAST_REMOTE_ERROR));
      EXPECT(error_contains(is_invalid ? "timeout_seconds is -1" : "/nonexistent/file"));
      EXPECT(part == nullptr);
      EXPECT_OK(reduce_one(comm));
    }
  });
}

// Takes part in the two exchanges of a split, but does not join the new communicator.
ncast_unique_id split_without_joining(ncast_comm* comm, int ranks, uint64_t network = 0) {
  struct Part {
    int32_t color, key;
    ncast_backend backend;
    ncast_status status;
    uint64_t network, host;
    char message[200];
    ncast_unique_id id;
  } const mine = {0, 0, NCAST_BACKEND_HOST, NCAST_OK, network, bootstrap::own_host(), {}, {}};
  std::vector<Part> all(static_cast<size_t>(ranks));
  for (int exchange = 0; exchange < 2; ++exchange)
    EXPECT_OK(ncast_all_gather(&mine, all.data(), sizeof mine, NCAST_UINT8, NCAST_CODEC_RAW, comm, nullptr));
  return all[0].id;
}

TEST_CASE("if a rank dies during a split, the others fail with its name") {
  const ncast_unique_id id = new_id();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank)
    pids.push_back(start_process([&, rank] {
      Comm comm(id, rank, 3, {0});
      if (rank == 2) {
        split_without_joining(comm, 3);
        kill(getpid(), SIGKILL);
      }
      ncast_comm* part = nullptr;
      EXPECT(ncast_comm_split(comm, 0, 0, nullptr, &part) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("rank 2 (pid "));
      EXPECT(error_contains("died"));
    }));
  for (const int rank : {0, 1}) CHECK(wait_for_process(pids[static_cast<size_t>(rank)]) == 0);
  CHECK(wait_for_process(pids[2]) == -SIGKILL);
}

TEST_CASE("an abort of the communicator ends its split on all ranks") {
  const ncast_unique_id id = new_id();
  run_processes(3, [&](int rank) {
    Comm comm(id, rank, 3, {0});
    if (rank == 2) {
      split_without_joining(comm, 3);
      EXPECT_OK(ncast_comm_abort(comm));
      return;
    }
    ncast_comm* part = nullptr;
    EXPECT(ncast_comm_split(comm, 0, 0, nullptr, &part) == NCAST_ABORTED);
    EXPECT(error_contains("aborted the communicator"));
  });
}

TEST_CASE("ranks of a split in other networks are not told to connect by loopback") {
  for (const bool is_near : {true, false}) {
    const ncast_unique_id id = new_id();
    run_processes(2, [&](int rank) {
      executor::Backend other = *executor::find_backend(NCAST_BACKEND_HOST);
      other.uses_hub = [](const bootstrap::UniqueIdContent&) { return true; };
      executor::add_backend(NCAST_BACKEND_CUDA, other);
      Comm comm(id, rank, 2, {0});
      const uint64_t network = bootstrap::own_network();
      if (rank != 0) {
        const ncast_unique_id part = split_without_joining(comm, 2, is_near ? network : network + 1);
        EXPECT_OK(ncast_comm_abort(comm));
        std::vector<bootstrap::InterfaceAddress> expected;
        const bootstrap::Reach reach = is_near ? bootstrap::Reach::local : bootstrap::Reach::anywhere;
        EXPECT_OK(bootstrap::listening_addresses(reach, "", &expected));
        bootstrap::TcpAddress hub = bootstrap::content_of(part).hub;
        hub.port = 0;
        EXPECT(hub.text() == expected[0].address.text());
        return;
      }
      ncast_comm* part = nullptr;
      EXPECT(ncast_comm_split(comm, 0, 0, nullptr, &part) == NCAST_ABORTED);
    });
  }
}

TEST_CASE("invalid arguments of a split are rejected") {
  const ncast_unique_id id = new_id();
  run_processes(1, [&](int) {
    Comm comm(id, 0, 1);
    ncast_comm* part = nullptr;
    EXPECT(ncast_comm_split(comm, 0, 0, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
    EXPECT(error_contains("result is NULL"));
    EXPECT(ncast_comm_split(nullptr, 0, 0, nullptr, &part) == NCAST_INVALID_ARGUMENT);
    EXPECT(ncast_comm_split(comm, -2, 0, nullptr, &part) == NCAST_INVALID_ARGUMENT);
    EXPECT_OK(ncast_group_start());
    EXPECT(ncast_comm_split(comm, 0, 0, nullptr, &part) == NCAST_INVALID_ARGUMENT);
    EXPECT_OK(ncast_group_end());
  });
}

}  // namespace
}  // namespace narrowcast::testing
