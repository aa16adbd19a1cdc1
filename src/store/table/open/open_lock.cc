#include "store/table/open/open_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <thread>

#include "bootstrap/deadline.h"
#include "bootstrap/interrupt.h"
#include "files/owned_file.h"
#include "status/error.h"
#include "store/file/checksum.h"

namespace narrowcast::store {
namespace {

bootstrap::Limit wait_limit{60};

// What the process that has a lock says about itself. The file begins with these. If two tables share one by chance,
// only messages are less exact.
struct Note {
  int64_t pid;
  int64_t progress;  // when it was made
  bool operator==(const Note&) const = default;
};
constexpr uint64_t notes = 256;
constexpr uint64_t first_lock = uint64_t{1} << 20;  // behind them

off_t place_of(uint64_t number) { return static_cast<off_t>(number % notes * sizeof(Note)); }

}  // namespace

void OpenLock::limit_wait(double seconds) { wait_limit.seconds = seconds; }

void OpenLock::note_progress() {
  const Note own = {getpid(), bootstrap::Clock::now().time_since_epoch().count()};
  // Without space in /dev/shm there are no notes.
  static_cast<void>(pwrite(file_.get(), &own, sizeof own, place_of(number_)) == 0);
}

ncast_status OpenLock::lock(const std::string& shared_name, const std::string& name) {
  const std::string path = "/dev/shm/narrowcast-locks." + std::to_string(geteuid());
  std::string why;
  if (!file_.open([&] { return files::open_owned(AT_FDCWD, path, O_RDWR | O_CREAT, files::Trust::own_only, &why); }))
    return fail(NCAST_SYSTEM_ERROR, "%s: cannot use %s: %s", name.c_str(), path.c_str(), why.c_str());
  number_ = file::checksum(shared_name.data(), shared_name.size());
  struct flock byte = {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(first_lock + (number_ >> 2));
  byte.l_len = 1;
  Note seen = {};
  auto since = bootstrap::Clock::now();
  while (fcntl(file_.get(), F_OFD_SETLK, &byte) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      const int error = errno;
      file_.close();
      return fail(NCAST_SYSTEM_ERROR, "%s: cannot lock %s: %s", name.c_str(), path.c_str(), std::strerror(error));
    }
    Note current = {};
    static_cast<void>(pread(file_.get(), &current, sizeof current, place_of(number_)) == 0);
    if (current != seen) {
      seen = current;
      since = bootstrap::Clock::now();
    }
    if (wait_limit.passed(since)) {
      file_.close();
      return fail(
          NCAST_TIMEOUT,
          "%s: process %" PRId64
          " of this user is opening or closing it in shared memory, without progress for %g seconds: continue or "
          "end that process",
          name.c_str(), seen.pid, wait_limit.seconds);
    }
    if (bootstrap::is_interrupted()) {
      file_.close();
      return bootstrap::interrupted();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  note_progress();
  return NCAST_OK;
}

}  // namespace narrowcast::store
