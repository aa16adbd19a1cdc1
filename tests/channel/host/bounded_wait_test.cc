// What ends a wait, and what does not.
#include "channel/host/bounded_wait.h"

#include <array>
#include <memory>

#include "bootstrap/shared_memory.h"
#include "channel/host/shared_world.h"
#include "narrowcast/interrupt.h"
#include "support/last_error.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace channel;

// The ends of three ranks in this process.
struct Worlds {
  TimeLimit limit;
  std::array<std::unique_ptr<World>, 3> of_rank;

  Worlds() {
    bootstrap::WorldId id;
    REQUIRE(bootstrap::random_bytes(&id, sizeof id) == NCAST_OK);
    run_threads(3, [&](int rank) {
      EXPECT_OK(SharedWorld::join(id, {rank, 3, {2, 1024}, {30}}, &of_rank[static_cast<size_t>(rank)]));
    });
  }
};

// A poll that finds nothing.
ncast_status poll(BoundedWait& wait, RankSet awaited) {
  if (ncast_status status = wait.begin_poll()) return status;
  return wait.no_progress(awaited);
}

TEST_CASE_FIXTURE(Worlds, "the time limit applies to waits for ranks, since the last progress") {
  BoundedWait wait(*of_rank[0], {0.02});
  CHECK(poll(wait, rank_bit(2)) == NCAST_OK);
  usleep(40000);
  CHECK(poll(wait, 0) == NCAST_OK);  // waits for something other than ranks
  wait.made_progress();
  CHECK(poll(wait, rank_bit(2)) == NCAST_OK);
  usleep(40000);
  CHECK(poll(wait, rank_bit(2)) == NCAST_TIMEOUT);
  CHECK(error_contains("rank 0 waited 0.02 s for rank 2 (pid "));
}

TEST_CASE_FIXTURE(Worlds, "a rank that has left fails only those that wait for it") {
  of_rank[2].reset();
  BoundedWait wait(*of_rank[1], {0});
  for (int i = 0; i < 2; ++i) CHECK(poll(wait, rank_bit(0)) == NCAST_OK);
  CHECK(poll(wait, rank_bit(0) | rank_bit(2)) == NCAST_REMOTE_ERROR);
  CHECK(error_contains("rank 2 (pid "));
  CHECK(error_contains("destroyed its communicator while rank 1 was waiting for it"));
  of_rank[0].reset();
  CHECK(of_rank[1]->left() == (rank_bit(0) | rank_bit(2)));
}

TEST_CASE_FIXTURE(Worlds, "a failure that was published is reported rather than that a rank has left") {
  of_rank[2].reset();
  BoundedWait wait(*of_rank[0], {0});
  CHECK(poll(wait, rank_bit(2)) == NCAST_OK);
  CHECK(wait.begin_poll() == NCAST_OK);
  CHECK(of_rank[1]->publish_failure(NCAST_CORRUPT, "the cause"));
  CHECK(wait.no_progress(rank_bit(2)) == NCAST_REMOTE_ERROR);
  CHECK(error_contains("rank 1 reports: the cause"));
}

TEST_CASE("a rank that ends inside a call fails all others, and one that ends outside those that wait for it") {
  const TimeLimit limit;
  for (const bool in_call : {false, true}) {
    bootstrap::WorldId id;
    REQUIRE(bootstrap::random_bytes(&id, sizeof id) == NCAST_OK);
    const pid_t peer = start_process([&] {
      std::unique_ptr<World> world;
      EXPECT_OK(SharedWorld::join(id, {1, 2, {2, 1024}, {30}}, &world));
      if (in_call) world->enter_call();
      _exit(0);
    });
    std::unique_ptr<World> world;
    REQUIRE(SharedWorld::join(id, {0, 2, {2, 1024}, {30}}, &world) == NCAST_OK);
    CHECK(wait_for_process(peer) == 0);
    BoundedWait wait(*world, {0});
    CHECK(poll(wait, 0) == NCAST_OK);
    usleep(60000);  // longer than the interval of inspections
    CHECK(wait.begin_poll() == NCAST_OK);
    CHECK(wait.is_inspecting());
    CHECK(wait.no_progress(0) == (in_call ? NCAST_REMOTE_ERROR : NCAST_OK));
    CHECK(wait.no_progress(rank_bit(1)) == NCAST_REMOTE_ERROR);
    CHECK(error_contains("died"));
  }
}

TEST_CASE_FIXTURE(Worlds, "an interrupt ends polls, whether they find something or not") {
  ncast_set_interrupt_check([](void*) { return 1; }, nullptr);
  for (const bool finds_something : {false, true}) {
    BoundedWait wait(*of_rank[0], {0});
    ncast_status status = NCAST_OK;
    while (status == NCAST_OK) {  // until the time limit of the test
      status = wait.begin_poll();
      if (finds_something)
        wait.made_progress();
      else if (status == NCAST_OK)
        status = wait.no_progress(rank_bit(1));
    }
    CHECK(status == NCAST_ABORTED);
  }
  ncast_set_interrupt_check(nullptr, nullptr);
}

TEST_CASE_FIXTURE(Worlds, "a failure wakes every rank, and a rank that leaves wakes the others") {
  const auto epochs = [&] {
    std::array<uint32_t, 3> found;
    for (int rank = 0; rank < 3; ++rank) found[static_cast<size_t>(rank)] = of_rank[0]->bell_of(rank).epoch();
    return found;
  };
  const auto before = epochs();
  CHECK(of_rank[1]->publish_failure(NCAST_CORRUPT, "the cause"));
  const auto after = epochs();
  for (size_t rank = 0; rank < 3; ++rank) CHECK(after[rank] != before[rank]);
  of_rank[2].reset();
  CHECK(epochs()[0] != after[0]);
  CHECK(epochs()[1] != after[1]);
}

}  // namespace
}  // namespace narrowcast::testing
