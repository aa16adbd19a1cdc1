// Semaphores in shared memory, and the bell that a waiting rank sleeps on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace narrowcast::channel {

// The word on which one rank sleeps. A rank waits for many semaphores at once, so every signal to one of them also
// notifies this word. A zeroed bell is valid.
class Doorbell {
 public:
  // The number of notifications so far. To wait: read the epoch, poll the semaphores, and pass the epoch to wait().
  uint32_t epoch() const { return epoch_.load(std::memory_order_seq_cst); }

  void notify();

  // Returns when the epoch is no longer `seen`, after `limit`, or spuriously. First yields the core a few times: the
  // peer often runs on the same core, and yielding is cheaper than sleeping.
  void wait(uint32_t seen, std::chrono::nanoseconds limit);

 private:
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> sleepers_{0};  // stays too high if a sleeping rank is killed; this only costs system calls
};

// A counter that one rank increments and another one polls.
class Semaphore {
 public:
  uint64_t poll() const { return count_.load(std::memory_order_acquire); }

  // A rank that polls the new count sees everything that was written before the signal.
  void signal(Doorbell& waiter) {
    count_.fetch_add(1, std::memory_order_release);
    waiter.notify();
  }

 private:
  std::atomic<uint64_t> count_{0};
};

}  // namespace narrowcast::channel
