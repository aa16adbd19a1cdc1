#include "status/system_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace narrowcast {

std::string system_error_text(int error) {
  std::string text = std::strerror(error);
  if (error == ENFILE) return text + " (the limit of this host is in /proc/sys/fs/file-max)";
  rlimit limit = {};
  if (error != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0) return text;
  return text + " (the limit of this process is " + std::to_string(limit.rlim_cur) + ": see ulimit -n)";
}

std::string thread_error_text(const std::system_error& error) {
  return error.code().message() +
         " (the limits are ulimit -u for the user, pids.max for the container, and memory, see ulimit -v)";
}

}  // namespace narrowcast
