// Lines on stderr, at the levels of NCCL_DEBUG, chosen by NARROWCAST_DEBUG. Any thread.
#pragma once

#include <chrono>

namespace narrowcast::nccl {

// Each level prints those before it. WARN unless NARROWCAST_DEBUG says otherwise.
enum class Level { none, version, warn, info, trace };

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
