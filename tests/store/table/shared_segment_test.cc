// The segment of a table in shared memory: other users can guess its name, and other programs can damage it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>

#include "store/table/open/table_file.h"
#include "support/other_user.h"
#include "support/ranks.h"
#include "tables.h"

namespace narrowcast::tests {
namespace {

std::string segment_path(const MemoryFile& table) {
  store::TableFile file;
  REQUIRE(file.open(table.path()) == NCAST_OK);
  return "/dev/shm/" + file.shared_name();
}

TEST_CASE("a segment that another user can have made is not opened") {
  const testing::TimeLimit limit;
  const MemoryFile table;
  build(table, {}, std::vector<uint8_t>(1000, 7), 10);
  const std::string path = segment_path(table);
  const auto is_refused = [&](mode_t type, mode_t mode, const char* why, uid_t owner = geteuid()) {
    REQUIRE(mknod(path.c_str(), type | mode, 0) == 0);
    REQUIRE(chmod(path.c_str(), mode) == 0);
    REQUIRE(chown(path.c_str(), owner, static_cast<gid_t>(-1)) == 0);
    const bool refused = open_shared(table) == NCAST_SYSTEM_ERROR && error_contains(path) && error_contains(why);
    REQUIRE(unlink(path.c_str()) == 0);
    return refused;
  };
  CHECK(is_refused(S_IFREG, 0666, "other users have access to it"));
  CHECK(is_refused(S_IFIFO, 0600, "not a regular file"));
  if (testing::can_be_other_users("a segment of another user"))
    CHECK(is_refused(S_IFREG, 0600, "another user (uid 54321)", testing::other_uid));
  CHECK(open_shared(table) == NCAST_OK);
}

TEST_CASE("a segment with the header of another table, or with numbers out of range, is not used") {
  const MemoryFile table;
  build(table, {}, std::vector<uint8_t>(1000, 7), 10);
  const Store opened = open(table.path(), NCAST_STORE_SHARED);
  const int file = ::open(segment_path(table).c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  const auto is_refused = [&](off_t offset, uint64_t damage) {
    uint64_t number;
    REQUIRE(pread(file, &number, sizeof number, offset) == sizeof number);
    REQUIRE(pwrite(file, &damage, sizeof damage, offset) == sizeof damage);
    const bool refused = open_shared(table) == NCAST_CORRUPT && error_contains("is damaged");
    REQUIRE(pwrite(file, &number, sizeof number, offset) == sizeof number);
    return refused;
  };
  CHECK(is_refused(4096 - 48, 1));           // the identity of the file
  CHECK(is_refused(4096 - 16, 99));          // a capacity below the number of rows
  CHECK(is_refused(4096, 101));              // more rows than fit
  CHECK(is_refused(4096, UINT64_MAX));       //
  CHECK(is_refused(4096 + 16, UINT64_MAX));  // more overflow entries than fit
  CHECK(open_shared(table) == NCAST_OK);
  close(file);
}

}  // namespace
}  // namespace narrowcast::tests
