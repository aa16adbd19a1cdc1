// Clocks and time limits.
#pragma once

#include <chrono>

namespace narrowcast::bootstrap {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

struct Limit {
  double seconds;  // 0: no limit
  bool passed(Clock::time_point since) const {
    return seconds > 0 && std::chrono::duration<double>(Clock::now() - since).count() >= seconds;
  }
};

}  // namespace narrowcast::bootstrap
