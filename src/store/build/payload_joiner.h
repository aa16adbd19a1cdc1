// Payloads of several threads, end to end.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace narrowcast::store {

// Knows where the payloads of a piece's tasks begin, which depends on all tasks before. Each thread keeps what it has
// encoded until that is known, and copies it then: soon, when it is still in the thread's cache. Locks would make
// threads sleep that have less than 100 microseconds of work for each task.
class PayloadJoiner {
  using Memory = std::unique_ptr<uint8_t[]>;

 public:
  // Before the first task of a piece of `tasks` tasks. `to` receives the payloads. most_task_bytes: of all pieces.
  void begin_piece(uint8_t* to, uint64_t tasks, uint64_t most_task_bytes) {
    task_bytes_ = most_task_bytes;
    to_ = to;
    tasks_ = std::vector<Task>(tasks);
    placed_ = 0;
    end_ = 0;
  }

  // The tasks of one thread. Destroyed before the piece ends, while other threads may still encode; then all of its
  // tasks are copied. placed(task, begin) is called for each of them after it was copied.
  template <typename Placed>
  class Worker {
   public:
    Worker(PayloadJoiner& joiner, Placed placed) : joiner_(joiner), placed_(std::move(placed)) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
      for (; !waiting_.empty(); copy_first()) joiner_.wait_for(waiting_.front().task);
      joiner_.give_back(std::move(free_));
    }

    // Memory for the payloads of the next task.
    uint8_t* memory() {
      if (free_.empty()) free_.push_back(joiner_.take());
      return free_.back().get();
    }

    // A task has `bytes` bytes in memory().
    void add(uint64_t task, uint64_t bytes) {
      waiting_.push_back({task, bytes, std::move(free_.back())});
      free_.pop_back();
      joiner_.place(task, bytes);
      while (!waiting_.empty() && waiting_.front().task < joiner_.placed_) copy_first();
    }

   private:
    struct Encoded {
      uint64_t task, bytes;
      Memory memory;
    };

    void copy_first() {
      Encoded& first = waiting_.front();
      const uint64_t begin = joiner_.tasks_[first.task].begin;
      std::memcpy(joiner_.to_ + begin, first.memory.get(), first.bytes);
      placed_(first.task, begin);
      free_.push_back(std::move(first.memory));
      waiting_.pop_front();
    }

    PayloadJoiner& joiner_;
    Placed placed_;
    std::vector<Memory> free_;
    std::deque<Encoded> waiting_;  // in the order of their tasks
  };

  // Of all payloads, when all tasks have been copied.
  uint64_t bytes() const { return end_; }

 private:
  static constexpr uint64_t unknown = ~uint64_t{0};
  struct Task {
    std::atomic<uint64_t> bytes{unknown};
    uint64_t begin;  // of tasks below placed_
  };

  // Memory for the payloads of a task: of a piece before, if there is some.
  Memory take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique_for_overwrite<uint8_t[]>(task_bytes_);
    Memory memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }
  void give_back(std::vector<Memory> memory) {
    const std::lock_guard lock(mutex_);
    for (Memory& one : memory) free_.push_back(std::move(one));
  }

  // A task has so many bytes. Finds the places of all tasks that have one now.
  void place(uint64_t task, uint64_t bytes) {
    tasks_[task].bytes = bytes;
    // Another thread that is here may have read a task's bytes before they were known, so it looks again: after it has
    // left, or this thread does.
    while (next_is_known() && !is_placing_.exchange(true)) {
      uint64_t next = placed_;
      for (uint64_t known = 0; next < tasks_.size() && (known = tasks_[next].bytes) != unknown; ++next) {
        tasks_[next].begin = end_;
        end_ += known;
      }
      placed_ = next;
      is_placing_ = false;
      placed_.notify_all();
    }
  }
  bool next_is_known() const {
    const uint64_t next = placed_;
    return next < tasks_.size() && tasks_[next].bytes != unknown;
  }
  void wait_for(uint64_t task) const {
    for (uint64_t placed = placed_; placed <= task; placed = placed_) placed_.wait(placed);
  }

  std::mutex mutex_;
  std::vector<Memory> free_;
  uint8_t* to_ = nullptr;
  uint64_t task_bytes_ = 0;
  std::vector<Task> tasks_;
  std::atomic<uint64_t> placed_{0};  // tasks whose places are known
  std::atomic<bool> is_placing_{false};
  uint64_t end_ = 0;  // of the payloads that have a place; of the thread that is placing
};

}  // namespace narrowcast::store
