// Opening tables in shared memory: the lock, and what killed processes leave.
#include <dirent.h>
#include <sys/file.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "bootstrap/shared_memory.h"
#include "store/handle.h"
#include "store/table/open/open_lock.h"
#include "store/table/open/table_file.h"
#include "support/ranks.h"
#include "tables.h"

using namespace narrowcast::tests;
namespace store = narrowcast::store;

namespace {

constexpr uint64_t shared_row_bytes = 64;

void build_small(const MemoryFile& file, uint64_t capacity = 0, int64_t spare = -1,
                 ncast_store_layout layout = NCAST_STORE_STRIDE) {
  build(file,
        {.dtype = NCAST_FLOAT32,
         .row_shape = {16},
         .codec = "window",
         .layout = layout,
         .capacity = capacity,
         .spare = spare},
        some_rows(NCAST_FLOAT32, 16, 100, 1), shared_row_bytes);
}

std::string shared_name(const MemoryFile& file) {
  store::TableFile opened;
  REQUIRE(opened.open(file.path()) == NCAST_OK);
  return opened.shared_name();
}

int names_with(const std::string& part) {
  int found = 0;
  DIR* listing = opendir("/dev/shm");
  while (const dirent* entry = readdir(listing)) {
    if (std::string(entry->d_name).find(part) != std::string::npos) ++found;
  }
  closedir(listing);
  return found;
}

struct WaitLimit {
  explicit WaitLimit(double seconds) { store::OpenLock::limit_wait(seconds); }
  ~WaitLimit() { store::OpenLock::limit_wait(60); }
};

}  // namespace

TEST_CASE("neither a lock of the file, which its readers can take, nor the lock of another table blocks") {
  const MemoryFile file;
  build_small(file);
  const int reader = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(flock(reader, LOCK_EX) == 0);
  store::OpenLock lock;
  REQUIRE(lock.lock("another table", "test") == NCAST_OK);
  const WaitLimit limit(0.2);
  CHECK(open_shared(file) == NCAST_OK);
  close(reader);
}

TEST_CASE("whoever waits without seeing progress names the process that has the lock") {
  const MemoryFile file;
  build_small(file);
  const WaitLimit limit(0.2);
  {
    store::OpenLock lock;
    REQUIRE(lock.lock(shared_name(file), "test") == NCAST_OK);
    CHECK(open_shared(file) == NCAST_TIMEOUT);
    CHECK(error_contains("process " + std::to_string(getpid()) + " of this user is opening or closing it"));
    CHECK(error_contains("without progress for 0.2 seconds"));
  }
  CHECK(open_shared(file) == NCAST_OK);
}

TEST_CASE("whoever sees progress waits longer") {
  const MemoryFile file;
  build_small(file);
  const WaitLimit limit(2);
  store::OpenLock lock;
  REQUIRE(lock.lock(shared_name(file), "test") == NCAST_OK);
  std::atomic<ncast_status> status{NCAST_ABORTED};
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> waited{};
  std::thread waiting([&] {
    status = open_shared(file);
    waited = std::chrono::steady_clock::now() - begin;
  });
  for (int i = 0; i < 25; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lock.note_progress();
  }
  lock.unlock();
  waiting.join();
  CHECK(status == NCAST_OK);
  CHECK(waited.count() > 2);
}

TEST_CASE("a table for which /dev/shm has no space is an error that says so, and uses none") {
  const MemoryFile file;
  build_small(file);
  const uint64_t capacity = uint64_t{1} << 36;  // more than 2 TiB
  REQUIRE(try_open(file.path(), NCAST_STORE_SHARED, 0, -1, capacity).status == NCAST_SYSTEM_ERROR);
  CHECK(error_contains("of shared memory, but /dev/shm has"));
  CHECK(error_contains("less capacity and spare"));
}

TEST_CASE("space that only the file asks for is limited") {
  for (const ncast_store_layout layout : {NCAST_STORE_STRIDE, NCAST_STORE_PACKED}) {
    CAPTURE(layout);
    const MemoryFile file;
    build_small(file, 3 << 20, 3 << 20, layout);  // more than 190 MiB, and 280 MiB
    REQUIRE(file.content().size() < 1u << 20);
    for (const ncast_store_host host : {NCAST_STORE_PINNED, NCAST_STORE_SHARED}) {
      const Store opened = open(file.path(), host);
      const ncast_store_info info = info_of(opened);
      CHECK(info.memory_bytes < 150u << 20);
      CHECK(info.memory_bytes > 120u << 20);
      CHECK(info.capacity > 500000);
      CHECK(info.free_entries > 500000);
    }
    const Store asked = open(file.path(), NCAST_STORE_PINNED, 0, 2000000, 3000000);
    CHECK(info_of(asked).capacity == 3000000);
    CHECK(info_of(asked).free_entries == 2000000);
  }
}

#ifndef __SANITIZE_THREAD__  // which does not support these forks
TEST_CASE("what a process that was killed while it loaded a table has left is removed when one is loaded") {
  const MemoryFile file;
  build_small(file);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = narrowcast::testing::start_process([&] {
    narrowcast::bootstrap::SharedMemory segment;
    const bool is_made = segment.create(1 << 20) == NCAST_OK;
    static_cast<void>(write(ends[1], &is_made, sizeof is_made) == 0);
    pause();
  });
  bool is_made = false;
  REQUIRE(read(ends[0], &is_made, sizeof is_made) == sizeof is_made);
  CHECK(is_made);
  const std::string part = "." + std::to_string(child) + ".";
  CHECK(names_with(part) == 1);
  kill(child, SIGKILL);
  CHECK(narrowcast::testing::wait_for_process(child) == -SIGKILL);
  // Any process of this user may remove it.
  CHECK(open_shared(file) == NCAST_OK);
  CHECK(names_with(part) == 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a forked child that closes a shared table leaves it to its parent") {
  const MemoryFile file;
  build_small(file);
  const Store opened = open(file.path(), NCAST_STORE_SHARED);
  std::vector<uint8_t> row(shared_row_bytes);
  REQUIRE(ncast_store_fetch(opened.get(), 0, 1, 1, row.data(), shared_row_bytes, 1) == NCAST_OK);
  CHECK(narrowcast::testing::wait_for_process(
            narrowcast::testing::start_process([&] { ncast_store_close(opened.get()); })) == 0);
  CHECK(names_with(shared_name(file)) == 1);
  CHECK(opened->table->owners->owner[0].state == narrowcast::bootstrap::SegmentOwners::joined);
  CHECK(opened->table->view.readers[0].owner != 0);
}

TEST_CASE("a lock ends with the process, also if it was killed while a forked child lives") {
  const MemoryFile file;
  build_small(file);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string name = shared_name(file);
  const pid_t child = narrowcast::testing::start_process([&] {
    store::OpenLock lock;
    if (lock.lock(name, "test") != NCAST_OK) _exit(1);
    const pid_t grandchild = narrowcast::testing::start_process([] { sleep(20); });
    static_cast<void>(write(ends[1], &grandchild, sizeof grandchild) == 0);
    kill(getpid(), SIGKILL);
  });
  pid_t grandchild = 0;
  REQUIRE(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
  CHECK(narrowcast::testing::wait_for_process(child) == -SIGKILL);
  const WaitLimit limit(2);
  CHECK(open_shared(file) == NCAST_OK);
  kill(grandchild, SIGKILL);
  close(ends[0]);
  close(ends[1]);
}
#endif
