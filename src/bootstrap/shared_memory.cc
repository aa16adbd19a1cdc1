#include "bootstrap/shared_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "files/owned_file.h"
#include "status/error.h"

namespace narrowcast::bootstrap {
namespace {

// Where shm_open() creates segments on Linux. We use paths instead of shm_open(), because link() publishes a complete
// segment atomically.
constexpr char directory[] = "/dev/shm";
constexpr char temporary_prefix[] = "narrowcast.tmp.";

constexpr int populate_write = 23;  // MADV_POPULATE_WRITE of Linux 5.14, which older headers lack

std::string path_of(const std::string& name) { return std::string(directory) + "/" + name; }

// The name of a temporary segment identifies its creator, because the content may not have been written yet.
ncast_status make_temporary_name(std::string* name) {
  uint64_t random;
  if (ncast_status status = random_bytes(&random, sizeof random)) return status;
  const ProcessIdentity self = current_process();
  char text[128];
  std::snprintf(text, sizeof text, "%s%" PRIu64 ".%" PRId64 ".%" PRIu64 ".%016" PRIx64, temporary_prefix,
                self.pid_namespace, self.pid, self.start_time, random);
  *name = text;
  return NCAST_OK;
}

int open_segment(const std::string& name, int flags, std::string* why) {
  return files::open_owned(AT_FDCWD, path_of(name), flags, files::Trust::own_only, why);
}

bool is_stale_temporary(const std::string& name, uint64_t pid_namespace) {
  ProcessIdentity creator;
  if (std::sscanf(name.c_str() + sizeof temporary_prefix - 1, "%" SCNu64 ".%" SCNd64 ".%" SCNu64,
                  &creator.pid_namespace, &creator.pid, &creator.start_time) != 3) {
    return false;
  }
  struct stat about;
  return creator.pid_namespace == pid_namespace && lstat(path_of(name).c_str(), &about) == 0 &&
         files::why_untrusted(about, files::Trust::own_only).empty() && !is_alive(creator);
}

bool is_stale_published(const std::string& name, uint64_t pid_namespace) {
  std::string ignored;
  const int file = open_segment(name, O_RDONLY, &ignored);
  if (file < 0) return false;
  static_assert(sizeof(SegmentOwners) < 4096);
  SegmentOwners owners;
  const ssize_t bytes = pread(file, static_cast<void*>(&owners), sizeof owners, 0);
  close(file);
  if (bytes != static_cast<ssize_t>(sizeof owners) || owners.magic != segment_magic) return false;
  for (const SegmentOwners::Owner& owner : owners.owner) {
    if (owner.state.load(std::memory_order_relaxed) != SegmentOwners::joined) continue;
    if (owner.process.pid_namespace != pid_namespace || is_alive(owner.process)) return false;
  }
  return true;
}

}  // namespace

ncast_status random_bytes(void* bytes, size_t count) {
  const ssize_t got = getrandom(bytes, count, 0);
  if (got == static_cast<ssize_t>(count)) return NCAST_OK;
  return fail(NCAST_SYSTEM_ERROR, "getrandom: %s", std::strerror(errno));
}

ncast_status SharedMemory::create(size_t bytes) {
  reset();
  if (ncast_status status = make_temporary_name(&temporary_name_)) return status;
  file_ = ::open(path_of(temporary_name_).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) {
    const int error = errno;
    temporary_name_.clear();
    return fail(NCAST_SYSTEM_ERROR, "cannot create shared memory in %s: %s", directory, std::strerror(error));
  }
  if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
    return fail(NCAST_SYSTEM_ERROR, "cannot size shared memory to %zu bytes: %s", bytes, std::strerror(errno));
  }
  return map(bytes);
}

ncast_status SharedMemory::open(const std::string& name, bool* found) {
  reset();
  std::string why;
  file_ = open_segment(name, O_RDWR, &why);
  *found = file_ >= 0;
  if (file_ < 0) {
    if (errno == ENOENT) return NCAST_OK;
    return fail(NCAST_SYSTEM_ERROR, "cannot use shared memory %s: %s", path_of(name).c_str(), why.c_str());
  }
  struct stat about;
  const bool has_header = fstat(file_, &about) == 0 && about.st_size >= static_cast<off_t>(sizeof(SegmentOwners));
  if (has_header) {
    if (ncast_status status = map(static_cast<size_t>(about.st_size))) return status;
    if (reinterpret_cast<const SegmentOwners*>(data_)->magic == segment_magic) return NCAST_OK;
  }
  reset();
  return fail(NCAST_SYSTEM_ERROR, "cannot use shared memory %s: it is not a segment of this library",
              path_of(name).c_str());
}

ncast_status SharedMemory::map(size_t bytes) {
  bytes_ = bytes;
  void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) {
    return fail(NCAST_SYSTEM_ERROR, "cannot map %zu bytes of shared memory: %s", bytes_, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
  madvise(data, bytes_, MADV_HUGEPAGE);  // an error only means small pages
  return NCAST_OK;
}

ncast_status SharedMemory::allocate(size_t offset_bytes, size_t length_bytes) {
  // Advice for huge pages belongs to the mapping, so only pages allocated through it follow the advice.
  if (offset_bytes + length_bytes <= bytes_ && madvise(data_ + offset_bytes, length_bytes, populate_write) == 0)
    return NCAST_OK;
  int error;
  do {
    error = posix_fallocate(file_, static_cast<off_t>(offset_bytes), static_cast<off_t>(length_bytes));
  } while (error == EINTR);
  if (error == 0) return NCAST_OK;
  struct statvfs space = {};
  statvfs(directory, &space);
  return fail(NCAST_SYSTEM_ERROR,
              "cannot allocate %zu bytes of shared memory: %s; %s has %llu bytes free (enlarge it, or set a smaller "
              "scratch_bytes)",
              length_bytes, std::strerror(error), directory,
              static_cast<unsigned long long>(space.f_bavail) * static_cast<unsigned long long>(space.f_frsize));
}

ncast_status SharedMemory::map_range(size_t offset_bytes, size_t length_bytes, SharedRange* range) {
  range->reset();
  // Allocating past the end grows the file; unlike ftruncate() it never shrinks it.
  if (ncast_status status = allocate(offset_bytes, length_bytes)) return status;
  void* data = mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(offset_bytes));
  if (data == MAP_FAILED) {
    return fail(NCAST_SYSTEM_ERROR, "cannot map %zu bytes of shared memory: %s", length_bytes, std::strerror(errno));
  }
  range->data_ = static_cast<std::byte*>(data);
  range->bytes_ = length_bytes;
  return NCAST_OK;
}

void SharedRange::reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

ncast_status SharedMemory::publish(const std::string& name, bool* taken) {
  *taken = false;
  if (link(path_of(temporary_name_).c_str(), path_of(name).c_str()) != 0) {
    *taken = errno == EEXIST;
    if (!*taken) {
      return fail(NCAST_SYSTEM_ERROR, "cannot name shared memory %s: %s", name.c_str(), std::strerror(errno));
    }
  }
  drop_temporary_name();
  return NCAST_OK;
}

void SharedMemory::drop_temporary_name() {
  if (!temporary_name_.empty()) unlink_segment(temporary_name_);
  temporary_name_.clear();
}

void SharedMemory::reset() {
  drop_temporary_name();
  if (data_ != nullptr) munmap(data_, bytes_);
  if (file_ >= 0) close(file_);
  data_ = nullptr;
  bytes_ = 0;
  file_ = -1;
}

void unlink_segment(const std::string& name) { unlink(path_of(name).c_str()); }

int sweep_stale_segments() {
  DIR* listing = opendir(directory);
  if (listing == nullptr) return 0;
  const uint64_t pid_namespace = current_process().pid_namespace;
  int removed = 0;
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    const bool stale = name.starts_with(temporary_prefix) ? is_stale_temporary(name, pid_namespace)
                       : name.starts_with(segment_prefix) ? is_stale_published(name, pid_namespace)
                                                          : false;
    if (stale && unlink(path_of(name).c_str()) == 0) ++removed;
  }
  closedir(listing);
  return removed;
}

}  // namespace narrowcast::bootstrap
