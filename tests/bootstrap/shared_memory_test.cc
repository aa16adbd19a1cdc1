// Files in /dev/shm that other users or other programs put there.
#include "bootstrap/shared_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <string>

#include "support/other_user.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace bootstrap;

// A name in /dev/shm that nothing else uses, removed at the end of the scope.
struct Name {
  Name() {
    uint64_t random;
    REQUIRE(random_bytes(&random, sizeof random) == NCAST_OK);
    text = segment_prefix + std::string("test.") + std::to_string(random);
    path = "/dev/shm/" + text;
  }
  ~Name() { unlink(path.c_str()); }
  std::string text, path;
};

// A published segment of this process.
class Segment {
 public:
  explicit Segment(const Name& name) {
    REQUIRE(memory_.create(1 << 16) == NCAST_OK);
    REQUIRE(memory_.allocate(0, 1 << 16) == NCAST_OK);
    owners()->magic = segment_magic;
    owners()->owner[0].process = current_process();
    owners()->owner[0].state = SegmentOwners::joined;
    bool taken;
    REQUIRE(memory_.publish(name.text, &taken) == NCAST_OK);
  }
  // From now on, any process on this machine may remove it.
  void make_stale() { owners()->owner[0].process.start_time += 1; }

 private:
  SegmentOwners* owners() { return reinterpret_cast<SegmentOwners*>(memory_.data()); }
  SharedMemory memory_;
};

bool exists(const Name& name) {
  struct stat about;
  return lstat(name.path.c_str(), &about) == 0;
}

// What is wrong with a segment, and how it becomes so.
struct Fault {
  const char* message;
  std::function<void(const Name&)> make;
  bool needs_root = false;
};

const Fault faults[] = {
    {"not a regular file",
     [](const Name& name) {
       unlink(name.path.c_str());
       REQUIRE(mkfifo(name.path.c_str(), 0600) == 0);
     }},
    {"not a regular file",
     [](const Name& name) {
       // Follow no link, not even one to a valid segment.
       const std::string target = name.path + ".target";
       REQUIRE(rename(name.path.c_str(), target.c_str()) == 0);
       REQUIRE(symlink(target.c_str(), name.path.c_str()) == 0);
     }},
    {"other users have access", [](const Name& name) { REQUIRE(chmod(name.path.c_str(), 0620) == 0); }},
    {"other users have access", [](const Name& name) { REQUIRE(chmod(name.path.c_str(), 0604) == 0); }},
    {"another user (uid 54321)", [](const Name& name) { REQUIRE(chown(name.path.c_str(), other_uid, 0) == 0); }, true},
};

TEST_CASE("a segment that another user may have written is neither opened nor removed") {
  const TimeLimit limit;
  for (const Fault& fault : faults) {
    CAPTURE(fault.message);
    if (fault.needs_root && !can_be_other_users("segments of another user")) continue;
    const Name name;
    Segment segment(name);
    fault.make(name);
    SharedMemory memory;
    bool found;
    CHECK(memory.open(name.text, &found) == NCAST_SYSTEM_ERROR);
    CHECK(std::string(ncast_last_error()).find(fault.message) != std::string::npos);
    CHECK(std::string(ncast_last_error()).find(name.path) != std::string::npos);
    CHECK(memory.data() == nullptr);
    segment.make_stale();
    sweep_stale_segments();
    CHECK(exists(name));
    unlink((name.path + ".target").c_str());
  }
}

TEST_CASE("own segments are opened and removed when stale") {
  const Name name;
  Segment segment(name);
  {
    SharedMemory memory;
    bool found;
    CHECK(memory.open(name.text, &found) == NCAST_OK);
    CHECK(found);
  }
  segment.make_stale();
  sweep_stale_segments();
  CHECK(!exists(name));
}

TEST_CASE("a file without the header of a segment is rejected") {
  const Name name;
  SharedMemory memory;
  bool found;
  const auto is_rejected = [&] {
    return memory.open(name.text, &found) == NCAST_SYSTEM_ERROR && memory.data() == nullptr &&
           std::string(ncast_last_error()).find("not a segment of this library") != std::string::npos;
  };
  const int file = open(name.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  CHECK(is_rejected());
  REQUIRE(ftruncate(file, 1 << 16) == 0);
  CHECK(is_rejected());
  const uint64_t other_magic = segment_magic + 1;
  REQUIRE(pwrite(file, &other_magic, sizeof other_magic, 0) == sizeof other_magic);
  CHECK(is_rejected());
  REQUIRE(pwrite(file, &segment_magic, sizeof segment_magic, 0) == sizeof segment_magic);
  CHECK(memory.open(name.text, &found) == NCAST_OK);
  REQUIRE(ftruncate(file, sizeof(SegmentOwners) - 1) == 0);
  CHECK(is_rejected());
  close(file);
}

TEST_CASE("a fifo in shared memory does not stop a sweep") {
  const Name name;
  REQUIRE(mkfifo(name.path.c_str(), 0666) == 0);
  REQUIRE(chmod(name.path.c_str(), 0666) == 0);
  const pid_t pid = start_process([] { sweep_stale_segments(); }, 10);
  CHECK(wait_for_process(pid) == 0);
  CHECK(exists(name));
}

TEST_CASE("a lease on a file in shared memory does not stop a sweep") {
  const Name name;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t holder = start_process([&] {
    signal(SIGIO, SIG_IGN);  // the request to give up the lease
    const int file = open(name.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    EXPECT(file >= 0);
    EXPECT(write(pipe_ends[1], fcntl(file, F_SETLEASE, F_WRLCK) == 0 ? "y" : "n", 1) == 1);
    pause();
  });
  char answer = 0;
  REQUIRE(read(pipe_ends[0], &answer, 1) == 1);
  if (answer == 'y')
    CHECK(wait_for_process(start_process([] { sweep_stale_segments(); }, 10)) == 0);
  else
    MESSAGE("skipped: /dev/shm does not support leases");
  kill(holder, SIGKILL);
  CHECK(wait_for_process(holder) == -SIGKILL);
  for (const int end : pipe_ends) close(end);
}

TEST_CASE("a sweep keeps temporary segments of other users") {
  if (!can_be_other_users("temporary segments of another user")) return;
  // Another user can choose such a name: that of a process that has ended.
  const ProcessIdentity self = current_process();
  const std::string path = "/dev/shm/narrowcast.tmp." + std::to_string(self.pid_namespace) + "." +
                           std::to_string(self.pid) + "." + std::to_string(self.start_time + 1) + ".test";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  REQUIRE(fchown(file, other_uid, 0) == 0);
  sweep_stale_segments();
  CHECK(access(path.c_str(), F_OK) == 0);
  REQUIRE(fchown(file, 0, 0) == 0);
  sweep_stale_segments();
  CHECK(access(path.c_str(), F_OK) != 0);
  close(file);
}

}  // namespace
}  // namespace narrowcast::testing
