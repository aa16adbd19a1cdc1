#include "bootstrap/process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace narrowcast::bootstrap {
namespace {

struct ProcStat {
  char state = '?';
  long threads = 0;
  uint64_t start_time = 0;
};

enum class Read { ok, no_such_process, unknown };

Read read_stat(int64_t pid, ProcStat* stat) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT || errno == ESRCH ? Read::no_such_process : Read::unknown;
  char text[1024];
  const ssize_t bytes = read(file, text, sizeof text - 1);
  const int error = errno;
  close(file);
  if (bytes <= 0) return bytes < 0 && error == ESRCH ? Read::no_such_process : Read::unknown;
  text[bytes] = 0;
  // The second field is the program's name in parentheses. It may contain any character, so the rest begins after the
  // last ')'.
  const char* rest = std::strrchr(text, ')');
  if (rest == nullptr) return Read::unknown;
  unsigned long long start_time = 0;
  const int fields =
      std::sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu",
                  &stat->state, &stat->threads, &start_time);
  stat->start_time = start_time;
  return fields == 3 ? Read::ok : Read::unknown;
}

}  // namespace

ProcessIdentity current_process() {
  ProcessIdentity self;
  self.pid = getpid();
  ProcStat stat;
  if (read_stat(self.pid, &stat) == Read::ok) self.start_time = stat.start_time;
  struct stat name_space;
  if (::stat("/proc/self/ns/pid", &name_space) == 0) self.pid_namespace = name_space.st_ino;
  return self;
}

bool is_alive(const ProcessIdentity& process) {
  ProcStat stat;
  switch (read_stat(process.pid, &stat)) {
    case Read::no_such_process: return false;
    case Read::unknown: return true;
    case Read::ok: break;
  }
  if (stat.start_time != process.start_time) return false;
  // A zombie that has other threads still runs: only its main thread has ended.
  const bool ended = stat.state == 'Z' || stat.state == 'X';
  return !ended || stat.threads > 1;
}

}  // namespace narrowcast::bootstrap
