// Detection of whether a process is alive.
#include "bootstrap/process.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include <string>
#include <thread>

#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using bootstrap::current_process;
using bootstrap::is_alive;
using bootstrap::ProcessIdentity;

TEST_CASE("a running process is alive") {
  CHECK(current_process().start_time != 0);
  CHECK(is_alive(current_process()));
}

// Starts a process, and calls check(identity, is_alive) while it runs, when it is a zombie, and when it is gone.
template <typename Check>
void check_a_killed_process(Check check) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t pid = start_process([&] {
    const ProcessIdentity self = current_process();
    EXPECT(write(pipe_ends[1], &self, sizeof self) == sizeof self);
    pause();
  });
  ProcessIdentity child;
  REQUIRE(read(pipe_ends[0], &child, sizeof child) == sizeof child);
  CHECK(child.pid == pid);
  check(child, true);
  kill(pid, SIGKILL);
  siginfo_t info;
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);  // leaves the zombie
  check(child, false);
  CHECK(wait_for_process(pid) == -SIGKILL);
  check(child, false);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_CASE("a zombie and a reaped process are dead") {
  check_a_killed_process([](const ProcessIdentity& child, bool expected) { CHECK(is_alive(child) == expected); });
}

// Calls body() while this process cannot open files.
template <typename Body>
void without_descriptors(Body body) {
  rlimit limit;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  body();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("a process without free descriptors detects a killed process") {
  check_a_killed_process([](const ProcessIdentity& child, bool expected) {
    bool alive = !expected;
    without_descriptors([&] { alive = is_alive(child); });
    CHECK(alive == expected);
  });
}

TEST_CASE("without free descriptors, a process is alive while any of its threads runs") {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t pid = start_process([&] {
    std::thread([&] {
      EXPECT(write(pipe_ends[1], "x", 1) == 1);
      pause();
    }).detach();
    syscall(SYS_exit, 0);  // ends the main thread only
  });
  char byte;
  REQUIRE(read(pipe_ends[0], &byte, 1) == 1);
  ProcessIdentity child;
  child.pid = pid;
  for (int turn = 0; turn < 20; ++turn) {
    usleep(1000);
    without_descriptors([&] { CHECK(is_alive(child)); });
  }
  kill(pid, SIGKILL);
  CHECK(wait_for_process(pid) == -SIGKILL);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_CASE("the error without free descriptors names the limit") {
  ProcessIdentity self;
  std::string message;
  without_descriptors([&] {
    CHECK(bootstrap::find_current_process(&self) == NCAST_SYSTEM_ERROR);
    message = ncast_last_error();
  });
  CHECK(message.find("Too many open files (the limit of this process is 0: see ulimit -n)") != std::string::npos);
}

TEST_CASE("a process is not alive because another one reuses its PID") {
  ProcessIdentity older = current_process();
  older.start_time -= 1;
  CHECK(!is_alive(older));
}

}  // namespace
}  // namespace narrowcast::testing
