#include "store/table/mapped_file.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "status/error.h"
#include "store/table/table.h"

namespace narrowcast::store {
namespace {

// Longer than the time between two ticks of a kernel's clock.
constexpr int64_t fresh_nanoseconds = 100'000'000;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

bool is_fresh(const struct stat& about) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  // Clocks of file servers may be ahead.
  return std::abs(nanoseconds(now) - nanoseconds(about.st_mtim)) < fresh_nanoseconds;
}

}  // namespace

MappedFile::~MappedFile() {
  watched_.reset();
  mapping_.reset();
  struct stat now;
  if (file_ >= 0 && is_own_file(&now)) close(file_);
}

bool MappedFile::is_own_file(struct stat* now) const {
  return fstat(file_, now) == 0 && now->st_ino == about_.st_ino && now->st_dev == about_.st_dev;
}

ncast_status MappedFile::map(int file, const std::string& name) {
  file_ = file;
  if (fstat(file_, &about_) != 0) return fail(NCAST_SYSTEM_ERROR, "%s: %s", name.c_str(), std::strerror(errno));
  if (ncast_status status = mapping_.map_file(file_, static_cast<uint64_t>(about_.st_size))) return status;
  watched_ = std::make_unique<WatchedMapping>(data(), bytes(), file_);
  header_.assign(data(), data() + file::page_bytes);
  is_fresh_ = is_fresh(about_);
  return NCAST_OK;
}

ncast_status MappedFile::look(const Table& table) {
  const char* const name = table.name.c_str();
  struct stat now;
  if (!is_own_file(&now))
    return fail(NCAST_SYSTEM_ERROR, "%s: the program has closed the descriptor of the mapped file", name);
  if (now.st_size != about_.st_size) {
    return fail(NCAST_CORRUPT, "%s was changed while it was open: it had %" PRIu64 " bytes, and has %" PRIu64, name,
                bytes(), static_cast<uint64_t>(now.st_size));
  }
  const bool has_header = std::memcmp(data(), header_.data(), header_.size()) == 0;
  if (watched_->has_lost_pages()) {
    return fail(NCAST_CORRUPT,
                "%s: pages of the file could not be read: it was truncated while it was open, or its disk failed",
                name);
  }
  if (!has_header) return fail(NCAST_CORRUPT, "%s was overwritten while it was open: it has another header", name);
  if (nanoseconds(now.st_mtim) != nanoseconds(about_.st_mtim)) ++times_written_;
  about_ = now;
  return NCAST_OK;
}

ncast_status MappedFile::check_before(Table& table, uint64_t* times_written) {
  const std::lock_guard lock(mutex_);
  const uint64_t before = times_written_;
  if (ncast_status status = look(table)) return status;
  *times_written = times_written_;
  if (times_written_ == before && !is_fresh_) return NCAST_OK;
  table.checks.forget();
  // If the index is damaged, the next call finds it again.
  is_fresh_ = true;
  if (!table.checks.are_good(file::offsets, 0, table.header.sections[file::offsets].bytes))
    return fail(NCAST_CORRUPT, "%s was overwritten while it was open: its index is damaged", table.name.c_str());
  is_fresh_ = is_fresh(about_);
  return NCAST_OK;
}

ncast_status MappedFile::check_after(Table& table, uint64_t times_written) {
  const std::lock_guard lock(mutex_);
  if (ncast_status status = look(table)) return status;
  if (times_written_ == times_written) return NCAST_OK;
  is_fresh_ = true;
  return fail(NCAST_CORRUPT, "%s was written while it was read", table.name.c_str());
}

}  // namespace narrowcast::store
