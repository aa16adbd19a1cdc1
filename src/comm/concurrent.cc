#include "comm/concurrent.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bootstrap/interrupt.h"
#include "status/error.h"
#include "status/system_error.h"

namespace narrowcast::comm {
namespace {

struct Outcome {
  ncast_status status = NCAST_OK;
  std::string message;
};

// Whether the error is a consequence of another rank's failure.
bool is_remote(ncast_status status) { return status == NCAST_REMOTE_ERROR || status == NCAST_TIMEOUT; }

// Counts the actions that have not ended. When the caller is interrupted, so are they.
class Countdown {
 public:
  explicit Countdown(int actions) : running_(actions) {}

  static int is_stopped(void* countdown) { return static_cast<Countdown*>(countdown)->stopped_ ? 1 : 0; }

  void interrupt_all() { stopped_ = true; }
  void end_one() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }
  ncast_status wait() {
    std::unique_lock lock(mutex_);
    if (bootstrap::wait_or_interrupt(changed_, lock, [this] { return running_ == 0; })) return NCAST_OK;
    interrupt_all();
    return bootstrap::interrupted();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

ncast_status run_concurrently(int count, int most_threads, const std::function<ncast_status(int)>& action) {
  if (count == 1) return action(0);
  std::vector<Outcome> outcomes(static_cast<size_t>(count));
  Countdown countdown(count);
  std::atomic<int> next{0};
  const auto work = [&] {
    const bootstrap::InterruptScope scope(Countdown::is_stopped, &countdown);
    for (int i = 0; (i = next++) < count;) {
      Outcome& outcome = outcomes[static_cast<size_t>(i)];
      outcome.status = action(i);
      if (outcome.status != NCAST_OK) outcome.message = ncast_last_error();
      countdown.end_one();
    }
  };
  ncast_status interruption = NCAST_OK;
  std::string no_thread;
  const int wanted = std::min(count, most_threads);
  int started = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(wanted));
    try {
      for (; started < wanted; ++started) threads.emplace_back(work);
    } catch (const std::system_error& error) {
      no_thread = thread_error_text(error);
      countdown.interrupt_all();
      work();
    }
    interruption = countdown.wait();
  }
  if (interruption != NCAST_OK) return bootstrap::interrupted();
  if (started < wanted)
    return fail(NCAST_SYSTEM_ERROR, "cannot start thread %d of %d: %s", started + 1, wanted, no_thread.c_str());
  const Outcome* first = nullptr;
  for (const Outcome& outcome : outcomes) {
    if (outcome.status == NCAST_OK) continue;
    if (first == nullptr || (is_remote(first->status) && !is_remote(outcome.status))) first = &outcome;
  }
  return first == nullptr ? NCAST_OK : fail(first->status, "%s", first->message.c_str());
}

}  // namespace narrowcast::comm
