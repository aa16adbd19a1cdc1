// How a thread polls: often while something happens, rarely when nothing has happened for a while.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace narrowcast::channel {

class IdlePause {
 public:
  // Whether little time has passed since the first call, in which a thread had better not sleep: waking up takes as
  // long. Lets other threads run.
  bool spins() {
    if (is_first_) {
      is_first_ = false;
      start_ = Clock::now();
      return true;
    }
    sched_yield();
    return Clock::now() - start_ < spinning;
  }
  // Waits after a poll that found nothing: for a 64th of the time since there was something, within limits.
  void wait() {
    if (spins()) return;
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_);
    std::this_thread::sleep_for(std::clamp(idle / 64, shortest, longest));
  }
  // Something has happened.
  void reset() { is_first_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds spinning{100}, shortest{20}, longest{1000};

  bool is_first_ = true;
  Clock::time_point start_;
};

}  // namespace narrowcast::channel
