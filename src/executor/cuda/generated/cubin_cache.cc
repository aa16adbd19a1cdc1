#include "executor/cuda/generated/cubin_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bootstrap/descriptor.h"
#include "files/cache_folder.h"
#include "files/owned_file.h"

#define XXH_INLINE_ALL
#include "xxhash/xxhash.h"

namespace narrowcast::executor::cuda::generated {
namespace {

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

using bootstrap::Descriptor;

// Opens an entry to read it, or to write it for this user alone. -1 if other users can have written it.
int open_entry(const Descriptor& folder, const std::string& name, int flags) {
  std::string ignored;
  return files::open_owned(folder.get(), name, flags, files::Trust::readable, &ignored);
}

// Opens a folder of entries. Returns why that fails, for example because other users can put some there.
std::string open_folder(const std::string& path, Descriptor* folder) {
  std::string why;
  folder->open([&] { return files::open_cache_folder(path, &why); });
  return why;
}

// Waits until no other process holds the lock of a file, and holds it until the file is closed.
void lock(const Descriptor& file) {
  while (file && flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
}

// Without streams, the first of which in a process takes as long as finding all kernels of a plan.
bool read_entry(const Descriptor& folder, const std::string& name, std::string* cubin) {
  Descriptor file;
  struct stat status;
  Header header;
  if (!file.open([&] { return open_entry(folder, name, O_RDONLY); }) || fstat(file.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) < sizeof header)
    return false;
  std::string content(static_cast<size_t>(status.st_size) - sizeof header, '\0');
  const iovec parts[] = {{&header, sizeof header}, {content.data(), content.size()}};
  if (readv(file.get(), parts, 2) != status.st_size || std::memcmp(header.magic, magic, sizeof magic) != 0 ||
      header.bytes != content.size())
    return false;
  const XXH128_canonical_t checksum = hash_of(content);
  if (std::memcmp(&checksum, &header.checksum, sizeof checksum) != 0) return false;
  *cubin = std::move(content);
  return true;
}

bool read_of_any_compiler(const Descriptor& folder, const CubinKey& key, std::string* cubin) {
  const std::string prefix = hex(key.kernel, 32) + "-";
  const int copy = fcntl(folder.get(), F_DUPFD_CLOEXEC, 0);  // closed by closedir()
  DIR* const listing = fdopendir(copy);
  if (listing == nullptr) {
    close(copy);
    return false;
  }
  bool is_found = false;
  while (const dirent* const entry = is_found ? nullptr : readdir(listing)) {
    const std::string name = entry->d_name;
    is_found = name.starts_with(prefix) && name.ends_with(".cubin") && read_entry(folder, name, cubin);
  }
  closedir(listing);
  return is_found;
}

// Returns whether that succeeded.
bool write_entry(const Descriptor& folder, const std::string& name, const std::string& cubin) {
  Header header;
  std::memcpy(header.magic, magic, sizeof magic);
  header.bytes = cubin.size();
  header.checksum = hash_of(cubin);
  const iovec parts[] = {{&header, sizeof header}, {const_cast<char*>(cubin.data()), cubin.size()}};
  return files::replace_file(folder.get(), name, parts);
}

}  // namespace

std::string CubinCache::default_folder() {
  if (const char* const folder = secure_getenv("NARROWCAST_PLAN_CACHE"); folder != nullptr && *folder != '\0')
    return std::strcmp(folder, "off") == 0 ? "" : folder;
  return files::cache_folder("plans");
}

std::string CubinCache::name_of(const CubinKey& key) {
  return hex(key.kernel, 32) + "-" + hex(key.compiler, 16) + ".cubin";
}

std::string CubinCache::why_unusable() const {
  Descriptor folder;
  return open_folder(folder_, &folder);
}

bool CubinCache::find(const CubinKey& key, std::string* cubin) const {
  Descriptor folder;
  if (folder_.empty() || !open_folder(folder_, &folder).empty()) return false;
  return read_entry(folder, name_of(key), cubin) || (key.compiler.empty() && read_of_any_compiler(folder, key, cubin));
}

ncast_status CubinCache::find_or_compile(const CubinKey& key, const std::function<ncast_status(std::string*)>& compile,
                                         std::string* cubin, bool* is_kept) const {
  bool ignored_result;
  bool& kept = is_kept != nullptr ? *is_kept : ignored_result;
  kept = !folder_.empty();
  if (folder_.empty()) return compile(cubin);
  if (find(key, cubin)) return NCAST_OK;
  files::make_folder(folder_);
  Descriptor folder, locked;
  kept = open_folder(folder_, &folder).empty();
  if (!kept) return compile(cubin);
  const std::string name = name_of(key);
  locked.open([&] { return open_entry(folder, name + ".lock", O_RDWR | O_CREAT); });
  lock(locked);
  if (read_entry(folder, name, cubin)) return NCAST_OK;  // another process has compiled it
  if (ncast_status status = compile(cubin)) return status;
  kept = write_entry(folder, name, *cubin);
  return NCAST_OK;
}

}  // namespace narrowcast::executor::cuda::generated
