// ncast_comm_split.
#include "failing.h"

namespace narrowcast::testing {
namespace {

TEST_CASE("RanksOfAColorFormACommunicatorOrderedByKey") {
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

TEST_CASE("ARankWithoutAColorGetsNoCommunicator") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    ncast_comm* part = comm;
    EXPECT_OK(ncast_comm_split(comm, rank == 0 ? NCAST_SPLIT_NOCOLOR : 0, 0, nullptr, &part));
    EXPECT((part == nullptr) == (rank == 0));
    EXPECT_OK(ncast_comm_destroy(part));
  });
}

TEST_CASE("AnInvalidSplitOfOneRankIsAnErrorOnAllAndTheCommunicatorRemainsUsable") {
  const ncast_unique_id id = new_id();
  run_processes(3, [&](int rank) {
    Comm comm(id, rank, 3);
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    if (rank == 2) config.timeout_seconds = -1;
    ncast_comm* part = nullptr;
    EXPECT(ncast_comm_split(comm, 0, 0, &config, &part) == (rank == 2 ? NCAST_INVALID_ARGUMENT : NCAST_REMOTE_ERROR));
    EXPECT(error_contains("timeout_seconds is -1"));
    EXPECT(part == nullptr);
    EXPECT_OK(reduce_one(comm));
  });
}

TEST_CASE("SplitChecksItsArguments") {
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
