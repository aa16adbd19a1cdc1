// How a thread polls: often while something happens, rarely when nothing has happened for a while.
#pragma once

#include <sched.h>

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
  // Waits after a poll that found nothing: the longer, the longer there was nothing.
  void wait() {
    if (!spins()) std::this_thread::sleep_for(Clock::now() - start_ < napping ? nap : sleep);
  }
  // Something has happened.
  void reset() { is_first_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds spinning{100}, napping{20000}, nap{20}, sleep{250};

  bool is_first_ = true;
  Clock::time_point start_;
};

}  // namespace narrowcast::channel
