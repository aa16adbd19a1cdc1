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
              "a futex needs a plain 32-bit word");

uint32_t* word(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

}  // namespace

// Accesses to epoch_ and sleepers_ are sequentially consistent, so no wake-up is lost: either notify() sees the
// sleeper, or wait() sees the new epoch. FUTEX_WAIT compares the epoch again inside the kernel.
void Doorbell::notify() {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, word(epoch_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Doorbell::wait(uint32_t seen, std::chrono::nanoseconds limit) {
  for (int i = 0; i < yields_before_sleep; ++i) {
    if (epoch() != seen) return;
    sched_yield();
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec timeout;
  timeout.tv_sec = seconds.count();
  timeout.tv_nsec = (limit - seconds).count();
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (epoch() == seen) syscall(SYS_futex, word(epoch_), FUTEX_WAIT, seen, &timeout, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace narrowcast::channel
