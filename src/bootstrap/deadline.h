// Clocks and time limits.
#pragma once

#include <chrono>

namespace narrowcast::bootstrap {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

// Zero: no limit.
struct Limit {
  double seconds;
  bool passed(Clock::time_point since) const {
    return seconds > 0 && std::chrono::duration<double>(Clock::now() - since).count() >= seconds;
  }
};

}  // namespace narrowcast::bootstrap
