// Ranks join through a segment in /dev/shm. Failed attempts leave no segments behind, only notices for late ranks.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <set>
#include <string>

#include "bootstrap/shared_memory.h"
#include "channel/host/failure_notice.h"
#include "channel/host/shared_world.h"
#include "status/error.h"
#include "support/last_error.h"
#include "support/other_user.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace bootstrap;
using namespace channel;

constexpr RingShape shape = {2, 1024};

WorldId new_world_id() {
  WorldId id;
  REQUIRE(random_bytes(&id, sizeof id) == NCAST_OK);
  return id;
}

ncast_status join(const WorldId& id, int rank, int ranks, std::unique_ptr<World>* world, double seconds = 30,
                  uint64_t scratch_bytes = 1) {
  WorldOptions options{rank, ranks, shape, {seconds}};
  REQUIRE(options.settings.add("scratch_bytes", scratch_bytes) == NCAST_OK);
  return SharedWorld::join(id, options, world);
}

// Names of all existing segments of the library, including those of tests that run at the same time.
std::set<std::string> segments() {
  std::set<std::string> names;
  DIR* listing = opendir("/dev/shm");
  REQUIRE(listing != nullptr);
  while (const dirent* entry = readdir(listing)) {
    if (std::string(entry->d_name).starts_with(segment_prefix)) names.insert(entry->d_name);
  }
  closedir(listing);
  return names;
}

bool has_temporary_segment(pid_t creator) {
  const std::string part = "." + std::to_string(creator) + ".";
  for (const std::string& name : segments()) {
    if (name.starts_with("narrowcast.tmp.") && name.find(part) != std::string::npos) return true;
  }
  return false;
}

std::string path_of(const WorldId& id) { return "/dev/shm/" + segment_name(id); }

bool is_published(const WorldId& id) { return segments().contains(segment_name(id)); }

TEST_CASE("a segment is private to the user, and its name does not contain the id") {
  const WorldId id = new_world_id();
  const pid_t pid = start_process([&] {
    std::unique_ptr<World> world;
    static_cast<void>(join(id, 0, 2, &world));
  });
  while (!is_published(id)) usleep(1000);
  struct stat about;
  REQUIRE(stat(path_of(id).c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  for (const uint64_t word : id) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016" PRIx64, word);
    for (const std::string& name : segments()) CHECK(name.find(digits) == std::string::npos);
  }
  kill(pid, SIGKILL);
  CHECK(wait_for_process(pid) == -SIGKILL);
  sweep_stale_segments();
  CHECK(!is_published(id));
}

TEST_CASE("a rank does not use the segment of another user") {
  if (!can_be_other_users("a rank of another user")) return;
  const WorldId id = new_world_id();
  const pid_t other = start_process([&] {
    EXPECT(setuid(other_uid) == 0);
    std::unique_ptr<World> world;
    static_cast<void>(join(id, 0, 2, &world));
  });
  while (!is_published(id)) usleep(1000);
  std::unique_ptr<World> world;
  CHECK(join(id, 1, 2, &world) == NCAST_SYSTEM_ERROR);  // although root can open all files
  CHECK(error_contains(path_of(id) + ": it belongs to another user (uid 54321)"));
  kill(other, SIGKILL);
  CHECK(wait_for_process(other) == -SIGKILL);
  CHECK(!is_published(id));  // the failed rank has removed the name
}

TEST_CASE("a sweep removes only temporary segments of dead processes") {
  SharedMemory mine;
  REQUIRE(mine.create(8192) == NCAST_OK);
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t pid = start_process([&] {
    SharedMemory memory;
    EXPECT_OK(memory.create(8192));
    EXPECT(write(pipe_ends[1], "x", 1) == 1);
    pause();
  });
  char byte;
  REQUIRE(read(pipe_ends[0], &byte, 1) == 1);
  sweep_stale_segments();
  CHECK(has_temporary_segment(pid));
  CHECK(has_temporary_segment(getpid()));
  kill(pid, SIGKILL);
  CHECK(wait_for_process(pid) == -SIGKILL);
  sweep_stale_segments();
  CHECK(!has_temporary_segment(pid));
  CHECK(has_temporary_segment(getpid()));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_CASE("missing ranks are named at the deadline") {
  const WorldId id = new_world_id();
  run_processes(2, [&](int rank) {
    std::unique_ptr<World> world;
    const ncast_status status = join(id, rank, 4, &world, 0.5);
    // One rank times out first; the other learns of it.
    EXPECT(status == NCAST_TIMEOUT);
    EXPECT(error_contains("not joined: 2, 3 (of 4)"));
    EXPECT(world == nullptr);
  });
  CHECK(!is_published(id));
}

TEST_CASE("a rank that dies while joining fails the others") {
  const WorldId id = new_world_id();
  const pid_t victim = start_process([&] {
    std::unique_ptr<World> world;
    static_cast<void>(join(id, 1, 3, &world));
  });
  while (!is_published(id)) usleep(1000);
  const pid_t other = start_process([&] {
    std::unique_ptr<World> world;
    EXPECT(join(id, 0, 3, &world) == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 1 (pid "));
  });
  usleep(200000);
  kill(victim, SIGKILL);
  CHECK(wait_for_process(other) == 0);
  CHECK(wait_for_process(victim) == -SIGKILL);
  CHECK(!is_published(id));
}

// Checks that both ranks fail with MISMATCH and a message that contains `part`, if they join as `body` does.
void check_disagreement(const std::function<ncast_status(const WorldId&, int, std::unique_ptr<World>*)>& body,
                        const std::string& part) {
  const WorldId id = new_world_id();
  run_processes(2, [&](int rank) {
    std::unique_ptr<World> world;
    EXPECT(body(id, rank, &world) == NCAST_MISMATCH);
    EXPECT(error_contains(part));
  });
  CHECK(!is_published(id));
}

TEST_CASE("ranks that disagree fail with a mismatch") {
  check_disagreement([](const WorldId& id, int rank, auto* world) { return join(id, rank, 2 + rank, world); },
                     "other ranks expect");
  check_disagreement([](const WorldId& id, int, auto* world) { return join(id, 0, 2, world); }, "joined as rank 0");
}

TEST_CASE("the rank whose settings differ is named, whichever rank comes first") {
  for (int first = 0; first < 3; ++first) {
    const WorldId id = new_world_id();
    run_threads(3, [&](int rank) {
      usleep(rank == first ? 0 : 20000);
      std::unique_ptr<World> world;
      EXPECT(join(id, rank, 3, &world, 30, rank == 2 ? 3000 : 4000) == NCAST_MISMATCH);
      EXPECT(std::string(ncast_last_error()) == "scratch_bytes is 3000 on rank 2, but 4000 on ranks 0, 1");
    });
    CHECK(!is_published(id));
    CHECK(check_failure_notice(id) == NCAST_OK);  // no rank can come later
  }
}

TEST_CASE("a late rank learns at once why the creation failed") {
  const WorldId id = new_world_id();
  // The ranks that fail have ended when the late one comes.
  run_processes(2, [&](int rank) {
    std::unique_ptr<World> world;
    EXPECT(join(id, rank, 3, &world, rank == 0 ? 0.1 : 30) == NCAST_TIMEOUT);
  });
  const TimeLimit limit;
  std::unique_ptr<World> world;
  CHECK(join(id, 2, 3, &world, 0) == NCAST_TIMEOUT);
  CHECK(error_contains("rank 0 reports: rank 0 waited 0.1 s for ranks that have not joined: 2 (of 3)"));
  CHECK(!is_published(id));
}

// Rank 0 fails with this error because rank 1, which comes later, fails as `join_badly` expects.
void check_rank_0(ncast_status status, const char* part, const std::function<void(const WorldId&)>& join_badly) {
  const WorldId id = new_world_id();
  run_processes(2, [&](int rank) {
    std::unique_ptr<World> world;
    if (rank == 0) {
      EXPECT(join(id, 0, 2, &world) == status);
      EXPECT(error_contains("rank 1 reports: "));
      EXPECT(error_contains(part));
      return;
    }
    while (!is_published(id)) usleep(1000);
    join_badly(id);
  });
  CHECK(!is_published(id));
}

TEST_CASE("a rank that cannot use the segment fails the others") {
  std::unique_ptr<World> world;
  check_rank_0(NCAST_REMOTE_ERROR, "cannot use shared memory", [&](const WorldId& id) {
    const rlimit none{0, 0};
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(join(id, 1, 2, &world) == NCAST_SYSTEM_ERROR);
  });
  check_rank_0(NCAST_REMOTE_ERROR, "is damaged", [&](const WorldId& id) {
    // Memory of rank 0 ends before that of rank 1.
    struct stat about;
    EXPECT(stat(path_of(id).c_str(), &about) == 0);
    EXPECT(truncate(path_of(id).c_str(), about.st_size - 1) == 0);
    EXPECT(join(id, 1, 2, &world) == NCAST_SYSTEM_ERROR);
  });
  check_rank_0(NCAST_MISMATCH, "rank 1 uses another version of the library", [&](const WorldId& id) {
    SharedMemory memory;
    bool found = false;
    EXPECT_OK(memory.open(segment_name(id), &found));
    reinterpret_cast<ControlBlock*>(memory.data())->version = 1;
    EXPECT(join(id, 1, 2, &world) == NCAST_MISMATCH);
  });
  if (!can_be_other_users("a rank of another user")) return;
  check_rank_0(NCAST_REMOTE_ERROR, "", [&](const WorldId& id) {
    EXPECT(setuid(other_uid) == 0);
    EXPECT(join(id, 1, 2, &world) != NCAST_OK);
  });
}

TEST_CASE("a rank that fails before it joins fails the others") {
  const WorldId id = new_world_id();
  const TimeLimit limit;
  SharedWorld::decline(id, 1, fail(NCAST_INVALID_ARGUMENT, "no file\x1b[2J\x7f"));
  std::unique_ptr<World> world;
  CHECK(join(id, 0, 2, &world, 0) == NCAST_REMOTE_ERROR);
  CHECK(error_contains("rank 1 reports: no file?[2J?"));
}

TEST_CASE("notices of failures are removed after their lifetime") {
  const WorldId id = new_world_id();
  leave_failure_notice(id, 1, NCAST_CORRUPT, "first");
  leave_failure_notice(id, 2, NCAST_CORRUPT, "second");
  sweep_failure_notices();
  CHECK(check_failure_notice(id) == NCAST_REMOTE_ERROR);
  CHECK(error_contains("rank 1 reports: first"));
  const std::string path = failure_notice_path(id);
  timespec old[2] = {};
  old[0].tv_sec = old[1].tv_sec = time(nullptr) - 3600;
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), old, AT_SYMLINK_NOFOLLOW) == 0);
  sweep_failure_notices();
  CHECK(check_failure_notice(id) == NCAST_OK);
}

TEST_CASE("ranks that have joined remove the name, and share the regions that all of them add") {
  const WorldId id = new_world_id();
  run_processes(2, [&](int rank) {
    std::unique_ptr<World> world;
    EXPECT_OK(join(id, rank, 2, &world));
    EXPECT(!is_published(id));
    EXPECT(world->rank() == rank && world->ranks() == 2);
    SharedRange regions[3];
    for (SharedRange& region : regions) EXPECT_OK(world->add_region(100, &region));
    for (SharedRange& region : regions)
      static_cast<std::atomic<int>*>(static_cast<void*>(region.data()))[rank] = 1 + static_cast<int>(&region - regions);
    for (const SharedRange& region : regions)
      while (static_cast<const std::atomic<int>*>(static_cast<const void*>(region.data()))[1 - rank] !=
             1 + static_cast<int>(&region - regions))
        usleep(1000);
  });
}

TEST_CASE("all ranks see the first published failure") {
  const WorldId id = new_world_id();
  run_threads(2, [&](int rank) {
    std::unique_ptr<World> world;
    EXPECT_OK(join(id, rank, 2, &world));
    if (rank == 1) {
      EXPECT_OK(world->check_failure());
      EXPECT(world->publish_failure(NCAST_CORRUPT, "a first failure"));
      EXPECT(!world->publish_failure(NCAST_ABORTED, "a second failure"));
    }
    while (world->check_failure() == NCAST_OK) usleep(1000);
    EXPECT(world->check_failure() == NCAST_REMOTE_ERROR);
    EXPECT(error_contains("rank 1 reports: a first failure"));
  });
}

}  // namespace
}  // namespace narrowcast::testing
