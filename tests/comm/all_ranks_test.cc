// One thread drives all ranks.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "comm/failing.h"
#include "comm/idle_comm.h"
#include "doctest/doctest.h"
#include "executor/registry.h"
#include "narrowcast/comm.h"
#include "status/error.h"
#include "support/ranks.h"

namespace {

// How many more threads this process can start. Negative: as many as the system allows.
std::atomic<int> threads_left{-1};

}  // namespace

// Replaces the function of the C library in this program.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* options,
                                                                     void* (*body)(void*), void* argument) {
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, options, body, argument);
}

namespace {

using narrowcast::testing::Clock;
using narrowcast::testing::error_contains;
using narrowcast::testing::seconds_since;

constexpr int ranks = 3;

TEST_CASE("one thread creates all ranks, makes their calls in a group, and destroys them") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  REQUIRE(ncast_comm_create_all(comms, ranks, nullptr, nullptr) == NCAST_OK);
  constexpr size_t count = 50000;
  ncast_stream streams[ranks];
  for (ncast_stream& stream : streams) REQUIRE(ncast_stream_create(&stream) == NCAST_OK);
  for (const bool with_streams : {false, true}) {
    std::vector<int> sums(ranks * count);
    REQUIRE(ncast_group_start() == NCAST_OK);
    for (int rank = 0; rank < ranks; ++rank) {
      int own_rank = -1;
      CHECK(ncast_comm_rank(comms[rank], &own_rank) == NCAST_OK);
      CHECK(own_rank == rank);
      int* const own = &sums[static_cast<size_t>(rank) * count];
      std::fill_n(own, count, rank + 1);
      CHECK(ncast_all_reduce(own, own, count, NCAST_INT32, NCAST_SUM, NCAST_CODEC_RAW, comms[rank],
                             with_streams ? streams[rank] : nullptr) == NCAST_OK);
    }
    REQUIRE(ncast_group_end() == NCAST_OK);
    for (ncast_stream stream : streams) REQUIRE(ncast_stream_synchronize(stream) == NCAST_OK);
    CHECK(sums == std::vector<int>(ranks * count, 6));
  }
  for (ncast_stream stream : streams) CHECK(ncast_stream_destroy(stream) == NCAST_OK);
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_OK);
  for (const ncast_comm* comm : comms) CHECK(comm == nullptr);
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_OK);
}

TEST_CASE("if one rank cannot be created, none is, and the message says why") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  CHECK(ncast_comm_create_all(nullptr, ranks, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_create_all(comms, 0, nullptr, nullptr) == NCAST_INVALID_ARGUMENT);
  CHECK(ncast_comm_destroy_all(nullptr, ranks) == NCAST_INVALID_ARGUMENT);
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.struct_bytes = sizeof config + 1000000;
  CHECK(ncast_comm_create_all(comms, ranks, nullptr, &config) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_comm_create_all: config.struct_bytes is"));
  config.struct_bytes = sizeof config;
  config.timeout_seconds = -1;
  CHECK(ncast_comm_create_all(comms, ranks, nullptr, &config) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("timeout_seconds is -1"));
  for (const ncast_comm* comm : comms) CHECK(comm == nullptr);

  // Only one rank is rejected. The others do not wait for it.
  ncast_comm_config_init(&config);
  const int devices[ranks] = {0, -7, 0};
  CHECK(ncast_comm_create_all(comms, ranks, devices, &config) == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("device is -7"));
  for (const ncast_comm* comm : comms) CHECK(comm == nullptr);
}

TEST_CASE("if there is no thread for a rank, no rank waits for it") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  ncast_comm_config config;
  ncast_comm_config_init(&config);
  config.create_timeout_seconds = 20;
  for (int threads = 0; threads < ranks; ++threads) {
    CAPTURE(threads);
    const Clock::time_point begin = Clock::now();
    threads_left = threads;
    const ncast_status status = ncast_comm_create_all(comms, ranks, nullptr, &config);
    threads_left = -1;
    CHECK(status == NCAST_SYSTEM_ERROR);
    CHECK(error_contains("cannot start thread " + std::to_string(threads + 1) + " of 3"));
    CHECK(seconds_since(begin) < 10);
    for (const ncast_comm* comm : comms) CHECK(comm == nullptr);
  }
}

TEST_CASE("a stream without a thread is an error that names the limits") {
  ncast_stream stream = nullptr;
  threads_left = 0;
  const ncast_status status = ncast_stream_create(&stream);
  threads_left = -1;
  CHECK(status == NCAST_SYSTEM_ERROR);
  CHECK(error_contains("ncast_stream_create: cannot start a thread: "));
  CHECK(error_contains("ulimit -u"));
  CHECK(stream == nullptr);
}

TEST_CASE("ranks are destroyed even if there are no threads for them") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  REQUIRE(ncast_comm_create_all(comms, ranks, nullptr, nullptr) == NCAST_OK);
  const std::vector<ncast_comm*> destroyed(comms, comms + ranks);
  threads_left = 1;
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_SYSTEM_ERROR);
  threads_left = -1;
  CHECK(error_contains("cannot start thread 2 of 3"));
  for (ncast_comm* comm : destroyed) CHECK(ncast_comm_destroy(comm) == NCAST_INVALID_ARGUMENT);
}

// A communicator whose calls have failed.
class FailedComm final : public narrowcast::testing::IdleComm {
 public:
  FailedComm(int rank, ncast_status status) : IdleComm(rank, ::ranks), status_(status) {}
  ncast_status wait_until_idle() override {
    return status_ == NCAST_OK ? NCAST_OK : narrowcast::fail(status_, "error of rank %d", rank());
  }

 private:
  const ncast_status status_;
};

TEST_CASE("the error of all ranks is the first one that is not a consequence of another rank's failure") {
  const narrowcast::testing::TimeLimit limit;
  struct {
    ncast_status of_rank[ranks];
    int reported;
  } const cases[] = {{{NCAST_TIMEOUT, NCAST_SYSTEM_ERROR, NCAST_CORRUPT}, 1},
                     {{NCAST_REMOTE_ERROR, NCAST_OK, NCAST_CORRUPT}, 2},
                     {{NCAST_CORRUPT, NCAST_TIMEOUT, NCAST_SYSTEM_ERROR}, 0},
                     {{NCAST_OK, NCAST_TIMEOUT, NCAST_REMOTE_ERROR}, 1}};
  for (const auto& [of_rank, reported] : cases) {
    ncast_comm* comms[ranks];
    for (int rank = 0; rank < ranks; ++rank) {
      comms[rank] = new FailedComm(rank, of_rank[rank]);
      narrowcast::executor::add_communicator(comms[rank]);
    }
    CHECK(ncast_comm_destroy_all(comms, ranks) == of_rank[reported]);
    CHECK(ncast_last_error() == "error of rank " + std::to_string(reported));
  }
}

TEST_CASE("an abandoned group launches no call of a thread's own ranks") {
  const narrowcast::testing::TimeLimit limit;
  ncast_comm* comms[ranks] = {};
  REQUIRE(ncast_comm_create_all(comms, ranks, nullptr, nullptr) == NCAST_OK);
  std::vector<int> values = {1, 10, 100};
  const auto add = [&](int rank) {
    int* const own = &values[static_cast<size_t>(rank)];
    CHECK(ncast_all_reduce(own, own, 1, NCAST_INT32, NCAST_SUM, NCAST_CODEC_RAW, comms[rank], nullptr) == NCAST_OK);
  };
  CHECK(ncast_group_abandon() == NCAST_INVALID_ARGUMENT);
  CHECK(error_contains("ncast_group_abandon: no group is open on this thread"));
  REQUIRE(ncast_group_start() == NCAST_OK);
  add(0);
  CHECK(ncast_group_abandon() == NCAST_OK);
  CHECK(values == std::vector<int>{1, 10, 100});
  REQUIRE(ncast_group_start() == NCAST_OK);
  for (int rank = 0; rank < ranks; ++rank) add(rank);
  CHECK(ncast_group_end() == NCAST_OK);
  CHECK(values == std::vector<int>{111, 111, 111});
  CHECK(ncast_comm_destroy_all(comms, ranks) == NCAST_OK);
}

}  // namespace
