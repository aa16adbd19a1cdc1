#include "executor/cuda/generated/cubin_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#define XXH_INLINE_ALL
#include "xxhash/xxhash.h"

namespace narrowcast::executor::cuda::generated {
namespace {

namespace files = std::filesystem;

// Precedes the cubin in its file.
struct Header {
  char magic[8];
  uint64_t bytes;
  XXH128_canonical_t checksum;
};
constexpr char magic[8] = {'n', 'c', 'c', 'u', 'b', 'i', 'n', '1'};

XXH128_canonical_t hash_of(const std::string& data) {
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits(data.data(), data.size()));
  return hash;
}

std::string hex(const std::string& data, size_t digits) {
  const XXH128_canonical_t hash = hash_of(data);
  std::string text;
  for (const unsigned char byte : hash.digest) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", byte);
    text += pair;
  }
  return text.substr(0, digits);
}

// Holds an exclusive lock on a file; without one if the file cannot be created. The lock ends with the process.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

}  // namespace

std::string CubinCache::default_folder() {
  if (const char* const folder = std::getenv("NARROWCAST_PLAN_CACHE"); folder != nullptr && *folder != '\0')
    return std::strcmp(folder, "off") == 0 ? "" : folder;
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/narrowcast/plans";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/narrowcast/plans" : "";
}

std::string CubinCache::path_of(const CubinKey& key) const {
  return folder_ + "/" + hex(key.kernel, 32) + "-" + hex(key.compiler, 16) + ".cubin";
}

bool CubinCache::find(const CubinKey& key, std::string* cubin) const {
  if (folder_.empty()) return false;
  return read(path_of(key), cubin) || (key.compiler.empty() && read_of_any_compiler(key, cubin));
}

ncast_status CubinCache::find_or_compile(const CubinKey& key, const std::function<ncast_status(std::string*)>& compile,
                                         std::string* cubin, bool* is_kept) const {
  bool ignored_result;
  bool& kept = is_kept != nullptr ? *is_kept : ignored_result;
  kept = !folder_.empty();
  if (folder_.empty()) return compile(cubin);
  if (find(key, cubin)) return NCAST_OK;
  const std::string path = path_of(key);
  std::error_code ignored;
  files::create_directories(folder_, ignored);
  const FileLock lock(path + ".lock");
  if (read(path, cubin)) return NCAST_OK;  // another process has compiled it
  if (ncast_status status = compile(cubin)) return status;
  kept = write(path, *cubin);
  return NCAST_OK;
}

// Without streams, the first of which in a process takes as long as finding all kernels of a plan.
bool CubinCache::read(const std::string& path, std::string* cubin) const {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status;
  Header header;
  std::string content;
  bool is_read = fstat(file, &status) == 0 && static_cast<size_t>(status.st_size) >= sizeof header;
  if (is_read) {
    content.resize(static_cast<size_t>(status.st_size) - sizeof header);
    const iovec parts[] = {{&header, sizeof header}, {content.data(), content.size()}};
    is_read = readv(file, parts, 2) == status.st_size;
  }
  close(file);
  if (!is_read || std::memcmp(header.magic, magic, sizeof magic) != 0 || header.bytes != content.size()) return false;
  const XXH128_canonical_t checksum = hash_of(content);
  if (std::memcmp(&checksum, &header.checksum, sizeof checksum) != 0) return false;
  *cubin = std::move(content);
  return true;
}

bool CubinCache::read_of_any_compiler(const CubinKey& key, std::string* cubin) const {
  const std::string prefix = hex(key.kernel, 32) + "-";
  std::error_code error;
  for (files::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".cubin") && read(entry->path().string(), cubin)) return true;
  }
  return false;
}

// Writes another file and renames it, so that readers see the whole file or none. Returns whether that succeeded.
bool CubinCache::write(const std::string& path, const std::string& cubin) const {
  const std::string written = path + "." + std::to_string(getpid());
  Header header;
  std::memcpy(header.magic, magic, sizeof magic);
  header.bytes = cubin.size();
  header.checksum = hash_of(cubin);
  std::error_code ignored;
  {
    std::ofstream file(written, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(cubin.data(), static_cast<std::streamsize>(cubin.size()));
    file.close();
    if (!file) {
      files::remove(written, ignored);
      return false;
    }
  }
  std::error_code error;
  files::rename(written, path, error);
  return !error;
}

}  // namespace narrowcast::executor::cuda::generated
