#include "files/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/ranks.h"

namespace narrowcast::testing {
namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/narrowcast_files_XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST_CASE("a regular file is read whole, up to a limit") {
  const Folder folder;
  const std::string path = folder.path + "/file";
  for (const size_t bytes : {0u, 1u, 999u, 1000u}) {
    const std::string written(bytes, 'x');
    std::ofstream(path) << written;
    std::string content = "before";
    CHECK(files::read_file(path, 1000, &content).empty());
    CHECK(content == written);
  }
  std::ofstream(path) << std::string(1001, 'x');
  std::string content = "before";
  CHECK(files::read_file(path, 1000, &content) == "it has more than 1000 bytes");
  CHECK(content.empty());
  // Files in /proc have no size.
  CHECK(files::read_file("/proc/self/stat", 1 << 20, &content).empty());
  CHECK(content.starts_with(std::to_string(getpid()) + " "));
}

TEST_CASE("what is not a regular file is an error, at once") {
  const TimeLimit limit(20);
  const Folder folder;
  const std::string fifo = folder.path + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  std::string content;
  CHECK(files::read_file(fifo, 1000, &content) == "it is not a regular file");
  CHECK(files::read_file("/dev/zero", 1000, &content) == "it is not a regular file");
  CHECK(files::read_file(folder.path, 1000, &content) == "Is a directory");
  CHECK(files::read_file(folder.path + "/none", 1000, &content) == "No such file or directory");
}

}  // namespace
}  // namespace narrowcast::testing
