// Where pages of shared memory are, and how large.
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "bootstrap/numa.h"
#include "bootstrap/shared_memory.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using namespace bootstrap;

constexpr size_t huge_bytes = size_t{2} << 20;
constexpr int cannot_test = 77;

// The line of /proc/self/numa_maps about the mapping at `data`.
std::string numa_line(const void* data) {
  std::ifstream maps("/proc/self/numa_maps");
  char address[32];
  std::snprintf(address, sizeof address, "%lx ", reinterpret_cast<unsigned long>(data));
  for (std::string line; std::getline(maps, line);)
    if (line.starts_with(address)) return line;
  return "";
}

// The size of the huge pages in mappings of shared memory that a process has.
size_t huge_shared_bytes() {
  std::ifstream maps("/proc/self/smaps");
  size_t bytes = 0;
  for (std::string word; maps >> word;) {
    size_t kib = 0;
    if (word == "ShmemPmdMapped:" && maps >> kib) bytes += kib << 10;
  }
  return bytes;
}

TEST_CASE("pages of shared memory are allocated on the preferred or required node") {
  for (const NodePolicy policy : {NodePolicy::preferred, NodePolicy::required}) {
    SharedMemory memory;
    REQUIRE(memory.create(1 << 16) == NCAST_OK);
    if (place_on_node(memory.data(), memory.bytes(), 0, policy) == NCAST_SYSTEM_ERROR) {
      MESSAGE("skipped: this system does not let memory be placed: ", std::string(ncast_last_error()));
      return;
    }
    REQUIRE(memory.allocate(0, memory.bytes()) == NCAST_OK);
    const std::string line = numa_line(memory.data());
    CAPTURE(line);
    CHECK(line.find(policy == NodePolicy::preferred ? "prefer:0" : "bind:0") != std::string::npos);
    CHECK(line.find("N0=16") != std::string::npos);  // pages of 4 KiB on node 0
  }
}

TEST_CASE("shared memory has huge pages where the file system gives them to those who ask") {
  // In a mount namespace of its own, so that nobody else sees the file system.
  const pid_t pid = start_process([] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("narrowcast", "/dev/shm", "tmpfs", 0, "huge=advise,size=64m") != 0)
      _exit(cannot_test);
    SharedMemory memory;
    EXPECT_OK(memory.create(4 * huge_bytes));
    EXPECT(huge_shared_bytes() == 0);
    EXPECT_OK(memory.allocate(0, memory.bytes()));
    EXPECT(huge_shared_bytes() >= huge_bytes);
    SharedMemory larger;
    EXPECT_OK(larger.create(128 << 20));
    EXPECT(larger.allocate(0, larger.bytes()) == NCAST_SYSTEM_ERROR);
  });
  const int status = wait_for_process(pid);
  if (status == cannot_test)
    MESSAGE("skipped: this user cannot mount a file system with huge pages");
  else
    CHECK(status == 0);
}

}  // namespace
}  // namespace narrowcast::testing
