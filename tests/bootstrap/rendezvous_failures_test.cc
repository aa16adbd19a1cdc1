// The TCP rendezvous reports failures, deaths and departures of ranks to the other ranks.
#include <vector>

#include "bootstrap/interrupt.h"
#include "rendezvous_ranks.h"

namespace narrowcast::testing {
namespace {

// The time within which a death must be detected. It takes less than a second; this allows for a loaded machine.
constexpr double detection_seconds = 20;  // far less than the time limits; machines that run tests are busy

// Starts `ranks` processes and kills `victim` once all have joined. The others run `body` after they have joined.
void kill_a_rank(int ranks, int victim, const std::function<void(Rendezvous&)>& body) {
  const HubProcess hub;
  SharedCount joined, killed;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&] {
      const auto rendezvous = hub->must_join(rank, ranks);
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
  CHECK(seconds_since(start) < detection_seconds);
}

// Call before a process with threads forks, so that no thread holds a lock (see run_process()).
void wait_until_threads_sleep() { usleep(200000); }

TEST_CASE("all ranks learn which rank was killed") {
  kill_a_rank(4, 2, [](Rendezvous& rendezvous) {
    EXPECT(wait_for_failure(rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 2 (pid "));
    EXPECT(error_contains(" died"));
    EXPECT(rendezvous.barrier() == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 2 (pid "));
  });
}

TEST_CASE("an all-gather that waits for a killed rank fails") {
  kill_a_rank(3, 0, [](Rendezvous& rendezvous) {
    int mine = 0, all[3];
    EXPECT(rendezvous.all_gather(&mine, sizeof mine, all) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 0 (pid "));
  });
}

TEST_CASE("an exchange of two ranks that waits for a killed rank fails") {
  kill_a_rank(3, 0, [](Rendezvous& rendezvous) {
    int mine = 0, theirs = 0;
    EXPECT(rendezvous.exchange_with(0, &mine, sizeof mine, &theirs) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 0 (pid "));
  });
}

TEST_CASE("a timeout of an exchange of two ranks names the other one") {
  const HubProcess hub;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->must_join(rank, 3);
    rendezvous->set_limit({rank == 2 ? 0.3 : 30});
    int mine = 0, theirs = 0;
    if (rank == 2) {
      EXPECT(rendezvous->exchange_with(1, &mine, sizeof mine, &theirs) == NCAST_TIMEOUT);
      EXPECT(error_contains("rank 2 waited 0.3 s for rank 1 to connect"));
    } else {
      EXPECT(wait_for_failure(*rendezvous) == NCAST_TIMEOUT);
      EXPECT(error_contains("rank 2 waited 0.3 s for rank 1 to connect"));
    }
  });
}

TEST_CASE("an exchange of two ranks of different sizes is a mismatch") {
  run_threads_with_hub(2, [&](const HubAddress& hub, int rank) {
    const auto rendezvous = hub.must_join(rank, 2);
    const char mine[9] = {};
    char theirs[9];
    EXPECT(rendezvous->exchange_with(1 - rank, mine, 8 + static_cast<size_t>(rank), theirs) == NCAST_MISMATCH);
  });
}

TEST_CASE("an exchange of two ranks fails if the other one has left or leaves") {
  for (const bool has_left : {true, false}) {
    CAPTURE(has_left);
    SharedCount left, waiting;
    const HubProcess hub;
    run_processes(3, [&](int rank) {
      auto rendezvous = hub->must_join(rank, 3);
      if (rank == 1) {
        if (!has_left) waiting.wait_for(2);
        if (!has_left) usleep(50000);
        rendezvous.reset();
        return left.add();
      }
      waiting.add();
      if (has_left) left.wait_for(1);
      int mine = 0, theirs = 0;
      EXPECT(rendezvous->exchange_with(1, &mine, sizeof mine, &theirs) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("because rank 1 has left"));
      EXPECT_OK(rendezvous->exchange_with(2 - rank, &mine, sizeof mine, &theirs));
      EXPECT_OK(rendezvous->check_failure());
    });
  }
}

TEST_CASE("a death is detected even if a forked child lives") {
  const HubProcess hub;
  SharedCount forked;
  const pid_t survivor = start_process([&] {
    const auto rendezvous = hub->must_join(0, 2);
    EXPECT(wait_for_failure(*rendezvous) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 1 (pid "));
  });
  int life[2];  // the child lives until the test closes its end
  REQUIRE(pipe(life) == 0);
  const pid_t victim = start_process([&] {
    auto rendezvous = hub->must_join(1, 2);
    wait_until_threads_sleep();
    if (fork() == 0) {
      close(life[1]);
      // Using the copy fails and does not affect the ranks.
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
  CHECK(seconds_since(start) < detection_seconds);
  CHECK(wait_for_process(victim) == -SIGKILL);
  close(life[0]);
  close(life[1]);
}

TEST_CASE("all ranks fail if the hub is killed") {
  HubProcess hub;
  SharedCount joined;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(start_process([&, rank] {
      const auto rendezvous = hub->must_join(rank, 3);
      joined.add();
      if (rank == 1) EXPECT(rendezvous->barrier() == NCAST_REMOTE_ERROR);
      EXPECT(wait_for_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("lost the connection to the process that created the unique id, pid " +
                            std::to_string(hub.pid())));
    }));
  }
  joined.wait_for(3);
  hub.end();
  const auto start = Clock::now();
  for (const pid_t pid : pids) CHECK(wait_for_process(pid) == 0);
  CHECK(seconds_since(start) < detection_seconds);
}

TEST_CASE("the death of the rank in the hub's process is reported") {
  // The hub's process forks the other rank. The child must not keep the hub's connections open.
  SharedCount joined;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t victim = start_process([&] {
    const HubAddress hub = HubAddress::start_hub();
    wait_until_threads_sleep();
    const pid_t survivor = start_process([&] {
      const auto rendezvous = hub.must_join(1, 2);
      joined.add();
      EXPECT(wait_for_failure(*rendezvous) == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("rank 0 died: its process created the unique id"));
      EXPECT(write(pipe_ends[1], "x", 1) == 1);
    });
    EXPECT(survivor > 0);
    const auto rendezvous = hub.must_join(0, 2);
    pause();
  });
  joined.wait_for(1);
  kill(victim, SIGKILL);
  const auto start = Clock::now();
  CHECK(wait_for_process(victim) == -SIGKILL);
  close(pipe_ends[1]);
  char byte = 0;
  CHECK(read(pipe_ends[0], &byte, 1) == 1);
  CHECK(seconds_since(start) < detection_seconds);
  close(pipe_ends[0]);
}

TEST_CASE("joining fails at once if the process that created the ID has ended") {
  HubProcess hub;
  hub.end();
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(hub->join(0, 2, &rendezvous) == NCAST_REMOTE_ERROR);
  CHECK(error_contains("the process that created the unique id"));
  CHECK(rendezvous == nullptr);
}

TEST_CASE("every other rank is notified of an abort once") {
  run_threads_with_hub(4, [&](const HubAddress& hub, int rank) {
    std::atomic<int> calls{0};
    const auto rendezvous = hub.must_join(rank, 4);
    rendezvous->on_failure([&, rank](ncast_status status, const char* message) {
      EXPECT(rank != 3);
      EXPECT(status == NCAST_ABORTED);
      EXPECT(std::string(message) == "rank 3 aborted the communicator");
      calls.fetch_add(1);
    });
    if (rank == 3) rendezvous->publish_failure(NCAST_ABORTED, "aborted");
    // The abort wakes a waiting rank, and is visible to a rank that does not wait.
    if (rank == 1) EXPECT(rendezvous->barrier() == NCAST_ABORTED);
    EXPECT(wait_for_failure(*rendezvous) == NCAST_ABORTED);
    while (rank != 3 && calls.load() == 0) usleep(1000);
    rendezvous->publish_failure(NCAST_CORRUPT, "too late");
    EXPECT(rendezvous->barrier() == NCAST_ABORTED);
    EXPECT(calls.load() == (rank == 3 ? 0 : 1));
  });
}

TEST_CASE("replacing a handler waits until it has ended") {
  run_threads_with_hub(2, [&](const HubAddress& hub, int rank) {
    std::atomic<bool> begun{false}, ended{false};
    const auto rendezvous = hub.must_join(rank, 2);
    rendezvous->on_failure([&](ncast_status, const char*) {
      begun = true;
      usleep(50000);
      ended = true;
    });
    if (rank == 0) return rendezvous->publish_failure(NCAST_ABORTED, "aborted");
    while (!begun) usleep(1000);
    rendezvous->on_failure(nullptr);
    EXPECT(ended);
  });
}

TEST_CASE("a failure names its rank, and the failure of all ranks keeps its status") {
  for (const ncast_status status : {NCAST_CORRUPT, NCAST_MISMATCH, NCAST_TIMEOUT}) {
    run_threads_with_hub(3, [&](const HubAddress& hub, int rank) {
      const auto rendezvous = hub.must_join(rank, 3);
      const std::string message = "block 7 " + std::string(2000, 'x');
      if (rank == 2) rendezvous->publish_failure(status, message.c_str());
      const bool stays = rank == 2 || status != NCAST_CORRUPT;
      EXPECT(wait_for_failure(*rendezvous) == (stays ? status : NCAST_REMOTE_ERROR));
      EXPECT(error_contains(rank == 2 ? "block 7 xxx" : "rank 2 reports: block 7 xxx"));
      // A handler that is set after the failure is called as well.
      std::atomic<bool> called{false};
      rendezvous->on_failure([&](ncast_status, const char*) { called = true; });
      while (rank != 2 && !called) usleep(1000);
      rendezvous->on_failure(nullptr);
    });
  }
}

TEST_CASE("a timeout while joining names the missing ranks") {
  const HubProcess hub;
  run_processes(2, [&](int rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    const ncast_status status = hub->join(2 * rank, 4, &rendezvous, 0.5);
    // One rank times out first; the other learns of it.
    EXPECT(status == NCAST_TIMEOUT);
    EXPECT(error_contains("not joined: 1, 3 (of 4)"));
    EXPECT(rendezvous == nullptr);
  });
  // A rank that joins later fails at once.
  std::unique_ptr<Rendezvous> rendezvous;
  CHECK(hub->join(3, 4, &rendezvous) == NCAST_TIMEOUT);
  CHECK(error_contains("not joined: 1, 3 (of 4)"));
}

TEST_CASE("a timeout of an all-gather names the ranks that did not call") {
  const HubProcess hub;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->must_join(rank, 3, rank == 0 ? 0.5 : 40);
    if (rank == 0) {
      EXPECT(rendezvous->barrier() == NCAST_TIMEOUT);
      EXPECT(error_contains("have not called it: 1, 2 (of 3)"));
    } else {
      EXPECT(wait_for_failure(*rendezvous) == NCAST_TIMEOUT);
      EXPECT(error_contains("rank 0 reports: rank 0 waited 0.5 s in all_gather"));
    }
  });
}

TEST_CASE("all-gathers have their own time limit") {
  const auto gives_up = [](double joining_seconds, double seconds) {
    const HubProcess hub;
    run_processes(2, [&](int rank) {
      const auto rendezvous = hub->must_join(rank, 2, rank == 0 ? joining_seconds : 40);
      EXPECT_OK(rendezvous->barrier());
      if (rank == 0) {
        rendezvous->set_limit({seconds});
        const auto start = Clock::now();
        EXPECT(rendezvous->barrier() == NCAST_TIMEOUT);
        EXPECT(seconds_since(start) >= seconds);
        EXPECT(error_contains(" s in all_gather for ranks that have not called it: 1 (of 2)"));
      } else {
        EXPECT(wait_for_failure(*rendezvous) == NCAST_TIMEOUT);
      }
    });
  };
  gives_up(0, 0.5);
  gives_up(1, 2);
}

// Interrupts the calling thread at the second check.
class InterruptSoon {
 public:
  InterruptSoon() : scope_(check, &checks_) {}

 private:
  static int check(void* checks) { return ++*static_cast<int*>(checks) == 2 ? 1 : 0; }

  int checks_ = 0;
  bootstrap::InterruptScope scope_;
};

TEST_CASE("an interruption while joining fails the group") {
  const HubProcess hub;
  run_processes(2, [&](int rank) {
    std::unique_ptr<Rendezvous> rendezvous;
    const auto start = Clock::now();
    if (rank == 0) {
      const InterruptSoon interrupt;
      EXPECT(hub->join(rank, 3, &rendezvous, 0) == NCAST_ABORTED);
    } else {
      EXPECT(hub->join(rank, 3, &rendezvous, 0) == NCAST_ABORTED);
      EXPECT(error_contains("rank 0 aborted the communicator"));
    }
    EXPECT(seconds_since(start) < 2);
  });
}

TEST_CASE("an interruption of an all-gather fails the group") {
  const HubProcess hub;
  run_processes(2, [&](int rank) {
    const auto rendezvous = hub->must_join(rank, 2, 0);
    if (rank == 0) {
      const InterruptSoon interrupt;
      EXPECT(rendezvous->barrier() == NCAST_ABORTED);
    }
    EXPECT(wait_for_failure(*rendezvous) == NCAST_ABORTED);
  });
}

TEST_CASE("joining a stopped hub times out") {
  const HubProcess hub;
  kill(hub.pid(), SIGSTOP);
  int stopped = 0;
  REQUIRE(waitpid(hub.pid(), &stopped, WUNTRACED) == hub.pid());
  const auto start = Clock::now();
  std::unique_ptr<Rendezvous> rendezvous;
  const TimeLimit limit;
  CHECK(hub->join(0, 1, &rendezvous, 0.2) == NCAST_TIMEOUT);
  CHECK(error_contains("waited 0.2 s for the process that created the unique id"));
  CHECK(seconds_since(start) < 6 + detection_seconds);
}

TEST_CASE("all ranks fail if they disagree about ranks") {
  const auto disagree = [](int second_rank, int second_ranks, const std::string& message) {
    const HubProcess hub;
    run_processes(2, [&](int caller) {
      std::unique_ptr<Rendezvous> rendezvous;
      EXPECT(hub->join(caller == 0 ? 0 : second_rank, caller == 0 ? 3 : second_ranks, &rendezvous) == NCAST_MISMATCH);
      EXPECT(error_contains(message));
    });
  };
  disagree(1, 2, "ranks, other ranks expect ");
  disagree(0, 3, "two callers joined as rank 0");
}

TEST_CASE("a rejected caller does not affect a complete group") {
  const HubProcess hub;
  SharedCount refused;
  run_processes(3, [&](int caller) {
    if (caller < 2) {
      const auto rendezvous = hub->must_join(caller, 2);
      EXPECT_OK(rendezvous->barrier());
      refused.add();
      refused.wait_for(3);
      EXPECT_OK(rendezvous->barrier());
    } else {
      refused.wait_for(2);
      std::unique_ptr<Rendezvous> rendezvous;
      EXPECT(hub->join(1, 2, &rendezvous) == NCAST_MISMATCH);
      EXPECT(error_contains("two callers joined as rank 1"));
      refused.add();
    }
  });
}

TEST_CASE("an all-gather of different sizes is a mismatch") {
  run_threads_with_hub(3, [&](const HubAddress& hub, int rank) {
    const auto rendezvous = hub.must_join(rank, 3);
    char mine[8] = {}, all[24];
    EXPECT(rendezvous->all_gather(mine, rank == 1 ? 8 : 4, all) == NCAST_MISMATCH);
    EXPECT(error_contains("contributes 8 bytes"));
    EXPECT(error_contains("contributes 4 bytes"));
    EXPECT(rendezvous->check_failure() == NCAST_MISMATCH);
  });
}

TEST_CASE("leaving is not a failure, but an all-gather that needs the rank fails") {
  const HubProcess hub;
  SharedCount done;
  run_processes(3, [&](int rank) {
    const auto rendezvous = hub->must_join(rank, 3);
    EXPECT_OK(rendezvous->barrier());
    if (rank == 1) return;
    for (int round = 0; round < 2; ++round) {
      EXPECT(rendezvous->barrier() == NCAST_REMOTE_ERROR);
      EXPECT(error_contains("rank 1 (pid "));
      EXPECT(error_contains(" left"));
      EXPECT_OK(rendezvous->check_failure());
    }
    // Wait, so that the error of the other rank does not name this one.
    done.add();
    done.wait_for(2);
  });
}

TEST_CASE("the hub's process may end once its ranks have left") {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t first = start_process([&] {
    const HubAddress hub = HubAddress::start_hub();
    EXPECT(write(pipe_ends[1], &hub, sizeof hub) == sizeof hub);
    EXPECT_OK(hub.must_join(0, 2)->barrier());
  });
  HubAddress hub;
  REQUIRE(read(pipe_ends[0], &hub, sizeof hub) == sizeof hub);
  const TimeLimit limit;
  const auto rendezvous = hub.must_join(1, 2);
  EXPECT_OK(rendezvous->barrier());
  CHECK(wait_for_process(first) == 0);
  usleep(100000);
  CHECK(rendezvous->check_failure() == NCAST_OK);
  CHECK(rendezvous->barrier() == NCAST_REMOTE_ERROR);
  CHECK(error_contains("rank 0"));
  CHECK(error_contains(" left"));
  CHECK(rendezvous->check_failure() == NCAST_OK);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace narrowcast::testing
