#include "files/owned_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/other_user.h"
#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

using files::Trust;

// A folder with a file, opened.
struct OwnedFile {
  OwnedFile() {
    char name[] = "/tmp/narrowcast_owned_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    folder_path = name;
    folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    std::string why;
    const int made = files::open_owned(folder, "file", O_RDWR | O_CREAT | O_EXCL, Trust::own_only, &why);
    REQUIRE(made >= 0);
    close(made);
  }
  ~OwnedFile() {
    close(folder);
    std::filesystem::remove_all(folder_path);
  }
  // Why the file cannot be opened; empty if it can.
  std::string why_not(Trust trust, const char* name = "file", int flags = O_RDONLY) const {
    std::string why;
    const int opened = files::open_owned(folder, name, flags, trust, &why);
    if (opened >= 0) close(opened);
    CHECK((opened >= 0) == why.empty());
    return why;
  }
  std::string path() const { return folder_path + "/file"; }
  std::string folder_path;
  int folder;
};

TEST_CASE("files are created with mode 0600 and opened again") {
  const OwnedFile file;
  struct stat about;
  REQUIRE(stat(file.path().c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  CHECK(file.why_not(Trust::own_only).empty());
  CHECK(file.why_not(Trust::readable).empty());
}

TEST_CASE("the bits of a mode decide who can have written a file") {
  const OwnedFile file;
  for (const mode_t mode : {0640, 0604, 0610, 0601}) {
    REQUIRE(chmod(file.path().c_str(), mode) == 0);
    CHECK(file.why_not(Trust::own_only) == "other users have access to it");
    CHECK(file.why_not(Trust::readable).empty());
  }
  for (const mode_t mode : {0620, 0602}) {
    REQUIRE(chmod(file.path().c_str(), mode) == 0);
    CHECK(file.why_not(Trust::own_only) == "other users have access to it");
    CHECK(file.why_not(Trust::readable) == "other users can write to it");
  }
}

TEST_CASE("symbolic links, FIFOs and folders are not opened, and do not block") {
  const TimeLimit limit(20);
  const OwnedFile file;
  REQUIRE(symlinkat("file", file.folder, "link") == 0);
  REQUIRE(mkfifoat(file.folder, "fifo", 0600) == 0);
  REQUIRE(mkdirat(file.folder, "folder", 0700) == 0);
  for (const Trust trust : {Trust::own_only, Trust::readable})
    for (const char* const name : {"link", "fifo", "folder"})
      CHECK(file.why_not(trust, name) == "it is not a regular file");
  CHECK(file.why_not(Trust::own_only, "none") == "No such file or directory");
  CHECK(errno == ENOENT);
}

TEST_CASE("a file of another user is not opened, and one of root only where root is trusted") {
  if (!can_be_other_users("files of another user")) return;
  const OwnedFile file;
  REQUIRE(chown(file.path().c_str(), other_uid, 0) == 0);
  for (const Trust trust : {Trust::own_only, Trust::readable})
    CHECK(file.why_not(trust) == "it belongs to another user (uid 54321)");
  REQUIRE(chown(file.path().c_str(), 0, 0) == 0);
  REQUIRE(chmod(file.path().c_str(), 0644) == 0);
  REQUIRE(chmod(file.folder_path.c_str(), 0755) == 0);
  CHECK(wait_for_process(start_process([&] {
          EXPECT(setuid(other_uid) == 0);
          EXPECT(file.why_not(Trust::readable).empty());
          EXPECT(file.why_not(Trust::own_only) == "it belongs to another user (uid 0)");
        })) == 0);
  // The owner is named even if the file cannot be opened.
  REQUIRE(chmod(file.path().c_str(), 0600) == 0);
  CHECK(wait_for_process(start_process([&] {
          EXPECT(setuid(other_uid) == 0);
          EXPECT(file.why_not(Trust::own_only) == "it belongs to another user (uid 0)");
          EXPECT(file.why_not(Trust::readable) == "Permission denied");
        })) == 0);
}

}  // namespace
}  // namespace narrowcast::testing
