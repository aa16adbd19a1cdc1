// Messages on stderr, with the levels of NCCL_DEBUG, selected by NARROWCAST_DEBUG or the settings file. Thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace narrowcast::nccl {

// Each level includes those before it. The default is warn.
enum class Level { none, version, warn, info, trace };

// Ignores case.
std::optional<Level> level_named(std::string_view name);
// Overrides NARROWCAST_DEBUG.
void choose_level(Level level);

// The text with control characters escaped, as \x1b: values of settings and names of files must not control a terminal
// or look like other lines of a log.
std::string printable(std::string_view text);

bool logs(Level level);
// Writes a line, with control characters escaped.
void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Collects the warnings that this thread logs while the object lives. Collectors nest.
class CollectedWarnings {
 public:
  // quiet: they are not written.
  explicit CollectedWarnings(bool quiet) : quiet_(quiet), outer_(innermost_) { innermost_ = this; }
  ~CollectedWarnings() { innermost_ = outer_; }
  CollectedWarnings(const CollectedWarnings&) = delete;
  CollectedWarnings& operator=(const CollectedWarnings&) = delete;

  const std::vector<std::string>& messages() const { return messages_; }
  // Gives the message to all collectors of this thread. Returns whether it is to be written.
  static bool collect(const std::string& message);

 private:
  const bool quiet_;
  CollectedWarnings* const outer_;
  std::vector<std::string> messages_;
  static thread_local CollectedWarnings* innermost_;
};

// Tells when a wait has lasted ten seconds, so that it can be reported.
class LongWait {
 public:
  // True once per wait.
  bool becomes_long() {
    if (is_long_ || std::chrono::steady_clock::now() < begin_ + std::chrono::seconds(10)) return false;
    is_long_ = true;
    return true;
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool is_long_ = false;
};

}  // namespace narrowcast::nccl
