// A unique id can be used for one communicator only. Segments that killed processes left behind are removed.
#include "bootstrap/unique_id.h"

#include <dirent.h>

#include <string>

#include "channel/host/shared_world.h"
#include "failing.h"

namespace narrowcast::testing {
namespace {

void expect_rejected(const ncast_unique_id& id, int rank) {
  ncast_comm* comm = nullptr;
  EXPECT(ncast_comm_create(&comm, 2, &id, rank, nullptr) == NCAST_INVALID_ARGUMENT);
  EXPECT(error_contains("id was already used"));
  EXPECT(comm == nullptr);
}

TEST_CASE("the id of a closed communicator is rejected") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    {
      Comm comm(id, rank, 2);
    }
    expect_rejected(id, rank);
    expect_rejected(id, 1 - rank);
    // A child that is forked later rejects the id as well.
    CHECK(wait_for_process(start_process([&] { expect_rejected(id, rank); })) == 0);
  });
  run_threads(2, [id = new_id()](int rank) {
    {
      Comm comm(id, rank, 2);
    }
    expect_rejected(id, rank);
  });
}

TEST_CASE("the id of an open communicator is rejected") {
  const ncast_unique_id id = new_id();
  run_processes(2, [&](int rank) {
    Comm comm(id, rank, 2);
    expect_rejected(id, rank);
    EXPECT_OK(reduce_one(comm));
  });
}

TEST_CASE("every later use of an id reports its failed creation") {
  const TimeLimit limit;
  for (const bool has_own_limit : {false, true}) {
    const ncast_unique_id id = new_id();
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.timeout_seconds = has_own_limit ? 0 : 0.1;
    config.create_timeout_seconds = has_own_limit ? 0.1 : 0;  // 0: timeout_seconds
    ncast_comm* comm = nullptr;
    CHECK(ncast_comm_create(&comm, 2, &id, 0, &config) == NCAST_TIMEOUT);
    for (const int rank : {1, 0, 1}) {
      CHECK(ncast_comm_create(&comm, 2, &id, rank, nullptr) == NCAST_TIMEOUT);
      CHECK(error_contains("rank 0 reports: rank 0 waited 0.1 s for ranks that have not joined: 1 (of 2)"));
    }
  }
}

// The number of names in /dev/shm that contain `part`.
int segments_with(const std::string& part) {
  DIR* listing = opendir("/dev/shm");
  REQUIRE(listing != nullptr);
  int count = 0;
  while (const dirent* entry = readdir(listing)) count += std::string(entry->d_name).find(part) != std::string::npos;
  closedir(listing);
  return count;
}

TEST_CASE("the next communicator removes segments of processes killed during creation") {
  std::vector<std::string> names;
  int left_behind = 0;
  for (int turn = 0; turn < 30; ++turn) {
    const ncast_unique_id id = new_id();
    std::vector<pid_t> pids;
    // Rank 2 of 3 never joins.
    for (int rank = 0; rank < 2; ++rank) {
      pids.push_back(start_process([&] {
        ncast_comm* comm = nullptr;
        static_cast<void>(ncast_comm_create(&comm, 3, &id, rank, nullptr));
      }));
    }
    usleep(static_cast<useconds_t>(turn * 300));
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    for (const pid_t pid : pids) {
      wait_for_process(pid);
      names.push_back("." + std::to_string(pid) + ".");
    }
    names.push_back(channel::segment_name(bootstrap::content_of(id).world));
    for (const std::string& name : names) left_behind += segments_with(name);
  }
  CHECK(left_behind > 0);  // otherwise the test proves nothing
  Comm next(new_id(), 0, 1);
  for (const std::string& name : names) CHECK(segments_with(name) == 0);
}

}  // namespace
}  // namespace narrowcast::testing
