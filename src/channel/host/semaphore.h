// Counters in shared memory with signal, wait and poll, and the bell that a waiting rank sleeps on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace narrowcast::channel {

// Where one rank sleeps until any peer has done something for it. A rank's transfers wait for many counters at once, so
// every signal for it rings this one word. All zero bytes is a valid bell.
class Doorbell {
 public:
  // What to hand to wait(): look, then poll whatever you wait for, then wait.
  uint32_t look() const { return notifications_.load(std::memory_order_seq_cst); }

  void notify();

  // Returns when the bell has rung since `seen` was looked at, or after `limit`, or spuriously. First yields the core a
  // few times: the peer often runs on the same one, and a sleep costs more than a turn.
  void wait(uint32_t seen, std::chrono::nanoseconds limit);

 private:
  std::atomic<uint32_t> notifications_{0};
  std::atomic<uint32_t> sleepers_{0};  // too high after a rank was killed asleep; that only costs a system call
};

// A counter that one rank raises and one rank reads.
class Semaphore {
 public:
  uint64_t poll() const { return count_.load(std::memory_order_acquire); }

  // Everything written before is visible to the rank that polls the new count.
  void signal(Doorbell& waiter) {
    count_.fetch_add(1, std::memory_order_release);
    waiter.notify();
  }

 private:
  std::atomic<uint64_t> count_{0};
};

}  // namespace narrowcast::channel
