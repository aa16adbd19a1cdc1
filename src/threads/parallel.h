// Loops that several threads share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "narrowcast/types.h"

namespace narrowcast::threads {

// The CPUs that this thread may use, at least 1.
int usable_cpus();

// The number of threads that `threads` asks for: 0 means all usable CPUs.
inline size_t count_of(int threads) { return static_cast<size_t>(threads > 0 ? threads : usable_cpus()); }

// Calls work() on up to `threads` threads at the same time, the caller's included, and waits for all of them. Uses
// fewer threads if the system has no more. work() must not throw.
void run_on(size_t threads, const std::function<void()>& work);

// Calls work(item) for all items below `count`, in order, on up to `threads` threads. work must not throw.
template <typename Work>
void for_each(size_t count, size_t threads, Work work) {
  std::atomic<size_t> next{0};
  run_on(std::min(threads, count), [&] {
    for (size_t at = next++; at < count; at = next++) work(at);
  });
}

// Threads that wait between loops. Starting them takes tens of microseconds each, which matters for loops of a few
// milliseconds. Calls follow each other.
class Team {
 public:
  // threads: of a loop, the caller's included. They are started by the first loop; fewer if the system has no more.
  explicit Team(size_t threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // As above.
  template <typename Work>
  void for_each(size_t count, Work work) {
    for_each_with(count, [&] { return [&](size_t at) { work(at); }; });
  }
  // The same for threads that have something of their own: begin() is called on each thread and returns its
  // work(item), which is destroyed on this thread when no items are left.
  template <typename Begin>
  void for_each_with(size_t count, Begin begin) {
    std::atomic<size_t> next{0};
    run(count, [&] {
      auto work = begin();
      for (size_t at = next++; at < count; at = next++) work(at);
    });
  }

 private:
  // Calls work() on all threads, or only on the caller's if there is one item.
  void run(size_t items, const std::function<void()>& work);
  void follow(int round);

  size_t threads_;
  int process_;
  std::vector<std::jthread> others_;
  const std::function<void()>* work_ = nullptr;  // of the round; NULL: the threads end
  std::atomic<int> round_{0};
  std::atomic<int> busy_{0};  // of the others
};

// The error of the first item that has one. Threads may use it at the same time.
class FirstError {
 public:
  // Notes the result for an item; the message is that of ncast_last_error() on this thread.
  void note(size_t item, ncast_status status);
  ncast_status status() const { return status_; }
  size_t item() const { return item_; }
  const std::string& message() const { return message_; }

 private:
  std::mutex mutex_;
  size_t item_ = 0;
  ncast_status status_ = NCAST_OK;
  std::string message_;
};

}  // namespace narrowcast::threads
