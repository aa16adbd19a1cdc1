// Detection of whether a process is alive.
#include "bootstrap/process.h"

#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using bootstrap::current_process;
using bootstrap::is_alive;
using bootstrap::ProcessIdentity;

TEST_CASE("ARunningProcessIsAlive") {
  CHECK(current_process().start_time != 0);
  CHECK(is_alive(current_process()));
}

TEST_CASE("AZombieAndAReapedProcessAreDead") {
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
  CHECK(is_alive(child));
  kill(pid, SIGKILL);
  siginfo_t info;
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);  // leaves the zombie
  CHECK(!is_alive(child));
  CHECK(wait_for_process(pid) == -SIGKILL);
  CHECK(!is_alive(child));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_CASE("AProcessThatReusesThePidDoesNotCountAsAlive") {
  ProcessIdentity older = current_process();
  older.start_time -= 1;
  CHECK(!is_alive(older));
}

}  // namespace
}  // namespace narrowcast::testing
