#include "threads/parallel.h"

#include <sched.h>
#include <unistd.h>

#include <system_error>

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

Team::Team(size_t threads) : threads_(threads), process_(getpid()) {}

Team::~Team() {
  // A process that was forked has none of the threads, and cannot wait for them.
  if (getpid() != process_) {
    for (std::jthread& thread : others_) thread.detach();
    return;
  }
  work_ = nullptr;
  ++round_;
  round_.notify_all();
}

void Team::run(size_t items, const std::function<void()>& work) {
  if (items > 1 && getpid() == process_) {
    const int round = round_;
    while (others_.size() + 1 < threads_ && start(others_, [this, round] { follow(round); })) continue;
  }
  if (items <= 1 || others_.empty() || getpid() != process_) return work();
  work_ = &work;
  busy_ = static_cast<int>(others_.size());
  ++round_;
  round_.notify_all();
  work();
  for (int busy = busy_; busy != 0; busy = busy_) busy_.wait(busy);
}

// round: before the first one in which the thread works.
void Team::follow(int round) {
  for (;;) {
    round_.wait(round);
    ++round;
    if (work_ == nullptr) return;
    (*work_)();
    if (--busy_ == 0) busy_.notify_one();
  }
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
