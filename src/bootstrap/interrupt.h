// Interruption of waits: ncast_set_interrupt_check.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "narrowcast/interrupt.h"

namespace narrowcast::bootstrap {

// How often a waiting thread asks whether it should stop.
inline constexpr std::chrono::milliseconds interrupt_interval{100};

// Calls the check of this thread, if it has one. If this returns true, the current function of the C API must return
// the error of interrupted(). The caller must hold no lock, because the check may call functions of the library.
bool is_interrupted();

// How often is_interrupted() has returned true on this thread.
uint64_t interruptions();

// Fails with NCAST_ABORTED, or with the cause that the check has set.
ncast_status interrupted();

// For checks that return true: why. Applies until the end of the innermost InterruptScope.
void set_interruption_cause(ncast_status status, const char* message);

// Waits until done(), which is called under the lock. Returns false if the thread was interrupted.
template <typename Done>
bool wait_or_interrupt(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Done done) {
  while (!changed.wait_for(lock, interrupt_interval, done)) {
    lock.unlock();
    const bool stop = is_interrupted();
    lock.lock();
    if (stop) return false;
  }
  return true;
}

// Replaces the check of this thread for a scope.
class InterruptScope {
 public:
  InterruptScope(ncast_interrupt_check check, void* context);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Calls the check that was replaced.
  bool outer_interrupts() const { return outer_check_ != nullptr && outer_check_(outer_context_) != 0; }

 private:
  ncast_interrupt_check outer_check_;
  void* outer_context_;
};

}  // namespace narrowcast::bootstrap
