#include "bootstrap/process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::bootstrap {
namespace {

struct ProcStat {
  char state = '?';
  long threads = 0;
  uint64_t start_time = 0;
};

// Returns 0 or an errno.
int read_stat(int64_t pid, ProcStat* stat) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  char text[1024];
  const ssize_t bytes = read(file, text, sizeof text - 1);
  const int error = bytes < 0 ? errno : 0;
  close(file);
  if (error != 0) return error;
  text[bytes] = 0;
  // The second field is the program's name in parentheses. It may contain any character, so the rest begins after the
  // last ')'.
  const char* rest = std::strrchr(text, ')');
  if (rest == nullptr) return EBADMSG;
  unsigned long long start_time = 0;
  const int fields =
      std::sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu",
                  &stat->state, &stat->threads, &start_time);
  stat->start_time = start_time;
  return fields == 3 ? 0 : EBADMSG;
}

bool is_missing(int error) { return error == ENOENT || error == ESRCH; }

// For a process that has no free descriptors. The main thread of a zombie has no executable any more, and the links of
// /proc/<pid>/task are one for each thread and two more.
bool seems_alive(int64_t pid) {
  char path[64], target[1];
  std::snprintf(path, sizeof path, "/proc/%lld/exe", static_cast<long long>(pid));
  if (readlink(path, target, sizeof target) >= 0 || !is_missing(errno)) return true;
  std::snprintf(path, sizeof path, "/proc/%lld/task", static_cast<long long>(pid));
  struct stat tasks;
  return stat(path, &tasks) == 0 ? tasks.st_nlink > 3 : !is_missing(errno);
}

}  // namespace

ncast_status find_current_process(ProcessIdentity* self) {
  self->pid = getpid();
  ProcStat stat;
  if (const int error = read_stat(self->pid, &stat))
    return fail(NCAST_SYSTEM_ERROR, "cannot read /proc/self/stat, which is needed to identify processes: %s",
                system_error_text(error).c_str());
  self->start_time = stat.start_time;
  struct stat name_space;
  if (::stat("/proc/self/ns/pid", &name_space) == 0) self->pid_namespace = name_space.st_ino;
  return NCAST_OK;
}

ProcessIdentity current_process() {
  ProcessIdentity self;
  static_cast<void>(find_current_process(&self));
  return self;
}

bool is_alive(const ProcessIdentity& process) {
  ProcStat stat;
  if (const int error = read_stat(process.pid, &stat)) {
    if (is_missing(error)) return false;
    return error != EMFILE && error != ENFILE ? true : seems_alive(process.pid);
  }
  if (stat.start_time != process.start_time) return false;
  // A zombie that has other threads still runs: only its main thread has ended.
  const bool ended = stat.state == 'Z' || stat.state == 'X';
  return !ended || stat.threads > 1;
}

}  // namespace narrowcast::bootstrap
