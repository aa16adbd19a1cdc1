#include "files/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace narrowcast::files {
namespace {

std::string read_opened(int file, uint64_t max_bytes, std::string* content) {
  struct stat about;
  if (fstat(file, &about) != 0) return std::strerror(errno);
  if (S_ISDIR(about.st_mode)) return std::strerror(EISDIR);
  if (!S_ISREG(about.st_mode)) return "it is not a regular file";
  // The size is only a hint: files in /proc have none, and others can grow.
  content->resize(std::min<uint64_t>(static_cast<uint64_t>(about.st_size), max_bytes) + 1);
  size_t bytes = 0;
  for (;;) {
    const ssize_t got = read(file, content->data() + bytes, content->size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::strerror(errno);
    bytes += static_cast<size_t>(got);
    if (bytes > max_bytes) return "it has more than " + std::to_string(max_bytes) + " bytes";
    if (got == 0) break;
    if (bytes == content->size()) content->resize(std::min<uint64_t>(2 * bytes, max_bytes + 1));
  }
  content->resize(bytes);
  return "";
}

}  // namespace

std::string read_file(const std::string& path, uint64_t max_bytes, std::string* content) {
  content->clear();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return std::strerror(errno);
  const std::string why = read_opened(file, max_bytes, content);
  close(file);
  if (!why.empty()) content->clear();
  return why;
}

}  // namespace narrowcast::files
