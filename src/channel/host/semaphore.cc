#include "channel/host/semaphore.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace narrowcast::channel {
namespace {

constexpr int yields_before_sleep = 64;

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free,
              "a futex is the word itself");

uint32_t* word(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

}  // namespace

// notifications_ and sleepers_ are both sequentially consistent: either the ringer sees the sleeper, or the sleeper
// sees the ring. FUTEX_WAIT compares once more inside the kernel.
void Doorbell::notify() {
  notifications_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, word(notifications_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Doorbell::wait(uint32_t seen, std::chrono::nanoseconds limit) {
  for (int i = 0; i < yields_before_sleep; ++i) {
    if (look() != seen) return;
    sched_yield();
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec timeout;
  timeout.tv_sec = seconds.count();
  timeout.tv_nsec = (limit - seconds).count();
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (look() == seen) syscall(SYS_futex, word(notifications_), FUTEX_WAIT, seen, &timeout, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace narrowcast::channel
