// Runs the body of a test as several ranks, in processes or threads. A time limit makes tests that hang fail.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/comm.h"

// For ranks in other processes or threads, where doctest does not see failures: prints the failure and ends the
// process.
#define EXPECT(condition)                                                                 \
  do {                                                                                    \
    if (!(condition)) ::narrowcast::testing::rank_failed(__FILE__, __LINE__, #condition); \
  } while (false)
#define EXPECT_OK(call) EXPECT((call) == NCAST_OK)

namespace narrowcast::testing {

[[noreturn]] inline void rank_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: in process %d: %s does not hold; last error: %s\n", file, line, getpid(), what,
               ncast_last_error());
  _exit(1);
}

inline constexpr unsigned default_seconds = 120;  // generous: sanitizers are slow, and machines that run tests busy

// Kills the process if the scope takes longer.
class TimeLimit {
 public:
  explicit TimeLimit(unsigned seconds = default_seconds) { alarm(seconds); }
  ~TimeLimit() { alarm(0); }
};

inline pid_t start_process(const std::function<void()>& body, unsigned seconds = default_seconds) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    alarm(seconds);
    body();
    _exit(0);
  }
  return pid;
}

// The exit status, or -signal.
inline int wait_for_process(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline void run_processes(int ranks, const std::function<void(int rank)>& body, unsigned seconds = default_seconds) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) pids.push_back(start_process([&] { body(rank); }, seconds));
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(wait_for_process(pids[static_cast<size_t>(rank)]) == 0);
  }
}

inline void run_threads(int ranks, const std::function<void(int rank)>& body, unsigned seconds = default_seconds) {
  const TimeLimit limit(seconds);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

inline ncast_unique_id new_id() {
  ncast_unique_id id;
  REQUIRE(ncast_get_unique_id(&id) == NCAST_OK);
  return id;
}

struct Settings {
  double timeout_seconds = 40;
  size_t scratch_bytes = 0;  // 0: the default
};

// With this budget slots hold 4 to 16 KiB, so that a few ten thousand values need many chunks.
inline constexpr Settings small_slots = {40, 200 << 10};

// A communicator that is destroyed at the end of the scope.
class Comm {
 public:
  Comm(const ncast_unique_id& id, int rank, int ranks, Settings settings = {}) {
    ncast_comm_config config;
    ncast_comm_config_init(&config);
    config.timeout_seconds = settings.timeout_seconds;
    if (settings.scratch_bytes != 0) config.scratch_bytes = settings.scratch_bytes;
    EXPECT_OK(ncast_comm_create(&comm_, ranks, &id, rank, &config));
  }
  Comm(const Comm&) = delete;
  ~Comm() { destroy(); }

  operator ncast_comm*() const { return comm_; }
  void destroy() {
    EXPECT_OK(ncast_comm_destroy(comm_));
    comm_ = nullptr;
  }

 private:
  ncast_comm* comm_ = nullptr;
};

}  // namespace narrowcast::testing
