// One thread drives all ranks.
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/comm.h"
#include "support/ranks.h"

namespace {

constexpr int ranks = 3;

TEST_CASE("one thread creates all ranks, makes their calls in a group, and destroys them") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  REQUIRE(ncast_comm_create_all(comms, ranks, nullptr, nullptr) == NCAST_OK);
  std::vector<int> values = {1, 10, 100}, sums(ranks);
  for (int again = 0; again < 2; ++again) {
    REQUIRE(ncast_group_start() == NCAST_OK);
    for (int rank = 0; rank < ranks; ++rank) {
      int own_rank = -1;
      CHECK(ncast_comm_rank(comms[rank], &own_rank) == NCAST_OK);
      CHECK(own_rank == rank);
      CHECK(ncast_all_reduce(&values[static_cast<size_t>(rank)], &sums[static_cast<size_t>(rank)], 1, NCAST_INT32,
                             NCAST_SUM, NCAST_CODEC_RAW, comms[rank], nullptr) == NCAST_OK);
    }
    REQUIRE(ncast_group_end() == NCAST_OK);
    CHECK(sums == std::vector<int>{111, 111, 111});
  }
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_OK);
  for (const ncast_comm* comm : comms) CHECK(comm == nullptr);
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_OK);
}

TEST_CASE("if one rank cannot be created, none is, and the message says why") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.timeout_seconds = -1;
  CHECK(ncast_comm_create_all(comms, ranks, nullptr, &config) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).find("timeout_seconds is -1") != std::string::npos);
  for (const ncast_comm* comm : comms) CHECK(comm == nullptr);

  // Only one rank is rejected. The others do not wait for it.
  ncast_comm_config_init(&config);
  const int devices[ranks] = {0, -7, 0};
  CHECK(ncast_comm_create_all(comms, ranks, devices, &config) == NCAST_INVALID_ARGUMENT);
  CHECK(std::string(ncast_last_error()).find("device is -7") != std::string::npos);
  for (const ncast_comm* comm : comms) CHECK(comm == nullptr);
}

TEST_CASE("invalid arguments of create_all and destroy_all are rejected") {
  ncast_comm* comm = nullptr;
  CHECK(ncast_comm_create_all(nullptr, 2, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_create_all(&comm, 0, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_destroy_all(nullptr, 1) == NCAST_INVALID_ARGUMENT);
}

}  // namespace
