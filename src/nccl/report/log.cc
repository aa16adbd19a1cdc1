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
  const char* const named = secure_getenv("NARROWCAST_DEBUG");
  return static_cast<int>(level_named(named != nullptr ? named : "").value_or(Level::warn));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  const auto is_in = [](char letter, unsigned char first, unsigned char last) {
    return first <= static_cast<unsigned char>(letter) && static_cast<unsigned char>(letter) <= last;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    // In UTF-8, the control characters from U+0080 to U+009F are C2 and a byte.
    const bool is_pair = is_in(text[i], 0xc2, 0xc2) && i + 1 < text.size() && is_in(text[i + 1], 0x80, 0x9f);
    if (is_pair) ++i;
    if (!is_pair && !is_in(text[i], 0, 0x1f) && !is_in(text[i], 0x7f, 0x7f)) {
      result += text[i];
      continue;
    }
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(text[i]));
    result += escaped;
  }
  return result;
}

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

thread_local CollectedWarnings* CollectedWarnings::innermost_ = nullptr;

bool CollectedWarnings::collect(const std::string& message) {
  for (CollectedWarnings* one = innermost_; one != nullptr; one = one->outer_) {
    one->messages_.push_back(message);
    if (one->quiet_) return false;
  }
  return true;
}

void log(Level level, const char* format, ...) {
  if (level != Level::warn && !logs(level)) return;
  char message[1200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (level == Level::warn && !(CollectedWarnings::collect(message) && logs(level))) return;
  char start[80];
  std::snprintf(start, sizeof start, "%d:%d narrowcast %s ", getpid(), gettid(), names[static_cast<int>(level)]);
  // One write per line, because ranks share a terminal.
  const std::string line = start + printable(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace narrowcast::nccl
