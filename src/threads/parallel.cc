#include "threads/parallel.h"

#include <sched.h>

#include <system_error>
#include <thread>
#include <vector>

namespace narrowcast::threads {
namespace {

// Returns false if the system has no more threads.
bool start(std::vector<std::jthread>& threads, const std::function<void()>& work) {
  try {
    threads.emplace_back(work);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

void run_on(size_t threads, const std::function<void()>& work) {
  std::vector<std::jthread> others;
  while (others.size() + 1 < threads && start(others, work)) continue;
  work();
}

void FirstError::note(size_t item, ncast_status status) {
  if (status == NCAST_OK) return;
  const std::lock_guard lock(mutex_);
  if (status_ != NCAST_OK && item_ < item) return;
  item_ = item;
  status_ = status;
  message_ = ncast_last_error();
}

}  // namespace narrowcast::threads
