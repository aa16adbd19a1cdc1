#include "nccl/log.h"

#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace narrowcast::nccl {
namespace {

constexpr const char* names[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
constexpr int unread = -1;
constinit std::atomic<int> chosen{unread};

int read_level() {
  const char* const named = std::getenv("NARROWCAST_DEBUG");
  if (named == nullptr || *named == '\0') return static_cast<int>(Level::warn);
  for (int level = 0; level < static_cast<int>(sizeof names / sizeof names[0]); ++level)
    if (strcasecmp(named, names[level]) == 0) return level;
  std::fprintf(stderr, "narrowcast WARN NARROWCAST_DEBUG is %s, not NONE, VERSION, WARN, INFO or TRACE\n", named);
  return static_cast<int>(Level::warn);
}

}  // namespace

bool logs(Level level) {
  int now = chosen.load(std::memory_order_relaxed);
  if (now == unread) chosen.store(now = read_level(), std::memory_order_relaxed);
  return static_cast<int>(level) <= now;
}

void log(Level level, const char* format, ...) {
  if (!logs(level)) return;
  // One write a line: ranks share a terminal.
  char line[1200];
  int used =
      std::snprintf(line, sizeof line, "%d:%d narrowcast %s ", getpid(), gettid(), names[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  used += std::vsnprintf(line + used, sizeof line - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  if (used > static_cast<int>(sizeof line) - 2) used = static_cast<int>(sizeof line) - 2;
  line[used] = '\n';
  std::fwrite(line, 1, static_cast<size_t>(used) + 1, stderr);
}

}  // namespace narrowcast::nccl
