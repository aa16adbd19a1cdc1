// Lines on stderr, at the levels of NCCL_DEBUG, chosen by NARROWCAST_DEBUG or a file of settings. Any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace narrowcast::nccl {

// Each level prints those before it. WARN unless a setting says otherwise.
enum class Level { none, version, warn, info, trace };

// In capitals or not.
std::optional<Level> level_named(std::string_view name);
// Until then it is that of NARROWCAST_DEBUG.
void choose_level(Level level);

bool logs(Level level);
void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// A wait of which something is to be said when it has lasted for ten seconds.
class LongWait {
 public:
  // True once.
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
