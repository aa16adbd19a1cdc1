#include "files/cache_folder.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "files/owned_file.h"

namespace narrowcast::files {

std::string cache_folder(const char* name) {
  if (const char* const cache = secure_getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/narrowcast/" + name;
  const char* const home = secure_getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/narrowcast/" + name : "";
}

void make_folder(const std::string& path) {
  for (size_t end = 0; end != path.npos;) {
    end = path.find('/', end + 1);
    mkdir(path.substr(0, end).c_str(), 0700);
  }
}

int open_cache_folder(const std::string& path, std::string* why) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat about;
  if (folder < 0 || fstat(folder, &about) != 0)
    *why = std::strerror(errno);
  else
    *why = why_untrusted(about, Trust::readable, S_IFDIR);
  if (why->empty() || folder < 0) return folder;
  close(folder);
  return -1;
}

bool replace_file(int folder, const std::string& name, std::span<const iovec> content) {
  uint64_t random;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return false;
  const std::string written = name + "." + std::to_string(random);
  std::string ignored;
  const int file = open_owned(folder, written, O_WRONLY | O_CREAT | O_EXCL, Trust::readable, &ignored);
  if (file < 0) return false;
  size_t bytes = 0;
  for (const iovec& part : content) bytes += part.iov_len;
  const bool is_written = writev(file, content.data(), static_cast<int>(content.size())) == static_cast<ssize_t>(bytes);
  close(file);
  if (is_written && renameat(folder, written.c_str(), folder, name.c_str()) == 0) return true;
  unlinkat(folder, written.c_str(), 0);
  return false;
}

}  // namespace narrowcast::files
