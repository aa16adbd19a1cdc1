// What ranks that meet over TCP learn of each other's failures, deaths and departures.
#include <vector>

#include "rendezvous_ranks.h"

namespace narrowcast::testing {
namespace {

// From a death to its being known: one second is promised, and a loaded machine gets some more.
constexpr double news_seconds = 3;

// `ranks` processes of which `victim` is killed once all have joined; the others run `body` from then on.
void kill_a_rank(int ranks, int victim, const std::function<void(Rendezvous&)>& body) {
  const HubProcess hub;
  SharedCount joined, killed;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&] {
      const auto rendezvous = hub->joined(rank, ranks);
      joined.add();
      if (rank == victim) pause();
      body(*rendezvous);
    }));
  }
  joined.wait_for(ranks);
  usleep(50000);
  const pid_t pid = pids[static_cast<size_t>(victim)];
  kill(pid, SIGKILL);
  const auto start = Clock::now();
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(wait_for_process(pids[static_cast<size_t>(rank)]) == (rank == victim ? -SIGKILL : 0));
  }
  CHECK(seconds_since(start) < news_seconds);
}

// Before a fork of a process that has threads (run_process() says why).
void let_threads_sleep() { usleep(200000); }

TEST_CASE("AKilledRankIsNamedToAll") {
  kill_a_rank(4, 2, [](Rendezvous& rendezvous) {
    EXPECT(await_failure(rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(sentence_has("rank 2 (pid "));
    EXPECT(sentence_has(" died"));
    EXPECT(rendezvous.barrier() == NCAST_REMOTE_ERROR);
    EXPECT(sentence_has("rank 2 (pid "));
  });
}

TEST_CASE("AKilledRankEndsTheGatherThatWaitsForIt") {
  kill_a_rank(3, 0, [](Rendezvous& rendezvous) {
    int mine = 0, all[3];
    EXPECT(rendezvous.all_gather(&mine, sizeof mine, all) == NCAST_REMOTE_ERROR);
    EXPECT(sentence_has("rank 0 (pid "));
  });
}

TEST_CASE("ADeathIsKnownThoughAChildOfTheRankLives") {
  const HubProcess hub;
  SharedCount forked;
  const pid_t survivor = start_process([&] {
    const auto rendezvous = hub->joined(0, 2);
    EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(sentence_has("rank 1 (pid "));
  });
  int life[2];  // the child lives until the test closes its end
  REQUIRE(pipe(life) == 0);
  const pid_t victim = start_process([&] {
    auto rendezvous = hub->joined(1, 2);
    let_threads_sleep();
    if (fork() == 0) {
      close(life[1]);
      // The copy is of no use and of no harm.
      EXPECT(rendezvous->barrier() == NCAST_UNSUPPORTED);
      EXPECT(rendezvous->check_failure() == NCAST_UNSUPPORTED);
      rendezvous->publish_failure(NCAST_ABORTED, "by a child");
      rendezvous.reset();
      forked.add();
      char byte;
      static_cast<void>(read(life[0], &byte, 1));
      _exit(0);
    }
    pause();
  });
  forked.wait_for(1);
  kill(victim, SIGKILL);
  const auto start = Clock::now();
  CHECK(wait_for_process(survivor) == 0);
  CHECK(seconds_since(start) < news_seconds);
  CHECK(wait_for_process(victim) == -SIGKILL);
  close(life[0]);
  close(life[1]);
}

TEST_CASE("AKilledHubEndsAll") {
  HubProcess hub;
  SharedCount joined;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(start_process([&, rank] {
      const auto rendezvous = hub->joined(rank, 3);
      joined.add();
      if (rank == 1) EXPECT(rendezvous->barrier() == NCAST_REMOTE_ERROR);
      EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(sentence_has("lost the process that made the unique id, pid " + std::to_string(hub.pid())));
    }));
  }
  joined.wait_for(3);
  hub.end();
  const auto start = Clock::now();
  for (const pid_t pid : pids) CHECK(wait_for_process(pid) == 0);
  CHECK(seconds_since(start) < news_seconds);
}

TEST_CASE("TheDeathOfTheRankBesideTheHubIsNamed") {
  // The hub's process forks the other rank, which must not keep the connections open.
  SharedCount joined;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t victim = start_process([&] {
    const Meeting meeting = Meeting::open();
    let_threads_sleep();
    const pid_t survivor = start_process([&] {
      const auto rendezvous = meeting.joined(1, 2);
      joined.add();
      EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(sentence_has("rank 0 died: its process made the unique id"));
      EXPECT(write(pipe_ends[1], "x", 1) == 1);
    });
    EXPECT(survivor > 0);
    const auto rendezvous = meeting.joined(0, 2);
    pause();
  });
  joined.wait_for(1);
  kill(victim, SIGKILL);
  const auto start = Clock::now();
  CHECK(wait_for_process(victim) == -SIGKILL);
  close(pipe_ends[1]);
  char byte = 0;
  CHECK(read(pipe_ends[0], &byte, 1) == 1);
  CHECK(seconds_since(start) < news_seconds);
  close(pipe_ends[0]);
}

TEST_CASE("AnIdWhoseMakerHasEndedIsAnErrorAtOnce") {
  HubProcess hub;
  hub.end();
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(hub->join(0, 2, &rendezvous) == NCAST_REMOTE_ERROR);
  CHECK(sentence_has("the process that made the unique id"));
  CHECK(rendezvous == nullptr);
}

TEST_CASE("AnAbortArrivesAtAllOnce") {
  run_threads_with_hub(4, [&](const Meeting& meeting, int rank) {
    std::atomic<int> calls{0};
    const auto rendezvous = meeting.joined(rank, 4);
    rendezvous->on_failure([&, rank](ncast_status status, const char* sentence) {
      EXPECT(rank != 3);
      EXPECT(status == NCAST_ABORTED);
      EXPECT(std::string(sentence) == "rank 3 aborted the communicator");
      calls.fetch_add(1);
    });
    if (rank == 3) rendezvous->publish_failure(NCAST_ABORTED, "aborted");
    // A rank that waits is woken, and one that does not finds out.
    if (rank == 1) EXPECT(rendezvous->barrier() == NCAST_ABORTED);
    EXPECT(await_failure(*rendezvous) == NCAST_ABORTED);
    while (rank != 3 && calls.load() == 0) usleep(1000);
    rendezvous->publish_failure(NCAST_CORRUPT, "too late");
    EXPECT(rendezvous->barrier() == NCAST_ABORTED);
    EXPECT(calls.load() == (rank == 3 ? 0 : 1));
  });
}

TEST_CASE("AFailureNamesItsRankAndAMismatchStaysOne") {
  for (const ncast_status status : {NCAST_CORRUPT, NCAST_MISMATCH}) {
    run_threads_with_hub(3, [&](const Meeting& meeting, int rank) {
      const auto rendezvous = meeting.joined(rank, 3);
      const std::string sentence = "block 7 " + std::string(2000, 'x');
      if (rank == 2) rendezvous->publish_failure(status, sentence.c_str());
      const bool stays = rank == 2 || status == NCAST_MISMATCH;
      EXPECT(await_failure(*rendezvous) == (stays ? status : NCAST_REMOTE_ERROR));
      EXPECT(sentence_has(rank == 2 ? "block 7 xxx" : "rank 2 reports: block 7 xxx"));
      // A handler that comes after the failure is called as well.
      std::atomic<bool> called{false};
      rendezvous->on_failure([&](ncast_status, const char*) { called = true; });
      while (rank != 2 && !called) usleep(1000);
      rendezvous->on_failure(nullptr);
    });
  }
}

TEST_CASE("MissingRanksAreNamed") {
  const HubProcess hub;
  run_processes(2, [&](int rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    const ncast_status status = hub->join(2 * rank, 4, &rendezvous, 0.5);
    // One gives up first and tells the other.
    EXPECT(status == NCAST_TIMEOUT || status == NCAST_REMOTE_ERROR);
    EXPECT(sentence_has("not joined: 1, 3 (of 4)"));
    EXPECT(rendezvous == nullptr);
  });
  // Who comes later is told at once.
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(hub->join(3, 4, &rendezvous) == NCAST_REMOTE_ERROR);
  CHECK(sentence_has("not joined: 1, 3 (of 4)"));
}

TEST_CASE("RanksThatDoNotCallAreNamed") {
  const HubProcess hub;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->joined(rank, 3, rank == 0 ? 0.5 : 40);
    if (rank == 0) {
      EXPECT(rendezvous->barrier() == NCAST_TIMEOUT);
      EXPECT(sentence_has("have not called it: 1, 2 (of 3)"));
    } else {
      EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(sentence_has("rank 0 reports: rank 0 waited 0.5 s in all_gather"));
    }
  });
}

TEST_CASE("GathersHaveALimitOfTheirOwn") {
  const auto gives_up = [](double joining_seconds, double seconds) {
    const HubProcess hub;
    run_processes(2, [&](int rank) {
      const auto rendezvous = hub->joined(rank, 2, rank == 0 ? joining_seconds : 40);
      EXPECT_OK(rendezvous->barrier());
      if (rank == 0) {
        rendezvous->set_limit({seconds});
        const auto start = Clock::now();
        EXPECT(rendezvous->barrier() == NCAST_TIMEOUT);
        EXPECT(seconds_since(start) >= seconds);
        EXPECT(sentence_has(" s in all_gather for ranks that have not called it: 1 (of 2)"));
      } else {
        EXPECT(await_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      }
    });
  };
  gives_up(0, 0.5);
  gives_up(1, 2);
}

TEST_CASE("AHubThatIsStoppedIsATimeout") {
  const HubProcess hub;
  kill(hub.pid(), SIGSTOP);
  int stopped = 0;
  REQUIRE(waitpid(hub.pid(), &stopped, WUNTRACED) == hub.pid());
  const auto start = Clock::now();
  std::unique_ptr<Rendezvous> rendezvous;
  const TimeLimit limit;
  CHECK(hub->join(0, 1, &rendezvous, 0.2) == NCAST_TIMEOUT);
  CHECK(sentence_has("waited 0.2 s for the process that made the unique id"));
  CHECK(seconds_since(start) < 6 + news_seconds);
}

TEST_CASE("RanksThatDisagreeAreAllTold") {
  const auto disagree = [](int second_rank, int second_ranks, const std::string& sentence) {
    const HubProcess hub;
    run_processes(2, [&](int caller) {
      std::unique_ptr<Rendezvous> rendezvous;
      EXPECT(hub->join(caller == 0 ? 0 : second_rank, caller == 0 ? 3 : second_ranks, &rendezvous) == NCAST_MISMATCH);
      EXPECT(sentence_has(sentence));
    });
  };
  disagree(1, 2, "ranks, others say ");
  disagree(0, 3, "two callers join as rank 0");
}

TEST_CASE("ASecondCallerDoesNotDisturbACompleteGroup") {
  const HubProcess hub;
  SharedCount refused;
  run_processes(3, [&](int caller) {
    if (caller < 2) {
      const auto rendezvous = hub->joined(caller, 2);
      EXPECT_OK(rendezvous->barrier());
      refused.add();
      refused.wait_for(3);
      EXPECT_OK(rendezvous->barrier());
    } else {
      refused.wait_for(2);
      std::unique_ptr<Rendezvous> rendezvous;
      EXPECT(hub->join(1, 2, &rendezvous) == NCAST_MISMATCH);
      EXPECT(sentence_has("two callers join as rank 1"));
      refused.add();
    }
  });
}

TEST_CASE("DifferentSizesAreAMismatch") {
  run_threads_with_hub(3, [&](const Meeting& meeting, int rank) {
    const auto rendezvous = meeting.joined(rank, 3);
    char mine[8] = {}, all[24];
    EXPECT(rendezvous->all_gather(mine, rank == 1 ? 8 : 4, all) == NCAST_MISMATCH);
    EXPECT(sentence_has("gives 8 bytes") || sentence_has("gives 4 bytes"));
    EXPECT(rendezvous->check_failure() == NCAST_MISMATCH);
  });
}

TEST_CASE("LeavingIsNoFailureButAGatherThatNeedsTheRankIsAnError") {
  const HubProcess hub;
  SharedCount done;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->joined(rank, 3);
    EXPECT_OK(rendezvous->barrier());
    if (rank == 1) return;
    for (int round = 0; round < 2; ++round) {
      EXPECT(rendezvous->barrier() == NCAST_REMOTE_ERROR);
      EXPECT(sentence_has("rank 1 (pid "));
      EXPECT(sentence_has(" left"));
      EXPECT_OK(rendezvous->check_failure());
    }
    // Otherwise it may be this one that the other finds gone.
    done.add();
    done.wait_for(2);
  });
}

TEST_CASE("TheProcessOfTheHubMayEndOnceItsRanksHaveLeft") {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t first = start_process([&] {
    const Meeting meeting = Meeting::open();
    EXPECT(write(pipe_ends[1], &meeting, sizeof meeting) == sizeof meeting);
    EXPECT_OK(meeting.joined(0, 2)->barrier());
  });
  Meeting meeting;
  REQUIRE(read(pipe_ends[0], &meeting, sizeof meeting) == sizeof meeting);
  const TimeLimit limit;
  const auto rendezvous = meeting.joined(1, 2);
  EXPECT_OK(rendezvous->barrier());
  CHECK(wait_for_process(first) == 0);
  usleep(100000);
  CHECK(rendezvous->check_failure() == NCAST_OK);
  CHECK(rendezvous->barrier() == NCAST_REMOTE_ERROR);
  CHECK(sentence_has("rank 0"));
  CHECK(sentence_has(" left"));
  CHECK(rendezvous->check_failure() == NCAST_OK);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace narrowcast::testing
