#include "nccl/report/log.h"

#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace narrowcast::nccl {
namespace {

constexpr const char* names[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
constexpr int not_read = -1;
constinit std::atomic<int> chosen{not_read};

// For messages before the settings are read. The settings warn about an unknown level.
int read_level() {
  const char* const named = std::getenv("NARROWCAST_DEBUG");
  return static_cast<int>(level_named(named != nullptr ? named : "").value_or(Level::warn));
}

}  // namespace

std::optional<Level> level_named(std::string_view name) {
  for (int level = 0; level < static_cast<int>(sizeof names / sizeof names[0]); ++level)
    if (strcasecmp(std::string(name).c_str(), names[level]) == 0) return static_cast<Level>(level);
  return std::nullopt;
}

void choose_level(Level level) { chosen.store(static_cast<int>(level), std::memory_order_relaxed); }

bool logs(Level level) {
  int now = chosen.load(std::memory_order_relaxed);
  if (now == not_read) chosen.store(now = read_level(), std::memory_order_relaxed);
  return static_cast<int>(level) <= now;
}

void log(Level level, const char* format, ...) {
  if (!logs(level)) return;
  // One write per line, because ranks share a terminal.
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
