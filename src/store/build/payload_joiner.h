// Payloads of several threads, end to end.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace narrowcast::store {

// Copies the payloads of a piece's tasks to their places, which depend on all tasks before, while later tasks are still
// encoded: soon after a thread has written them, when they are still in its cache. Members are called by several
// threads, except begin_piece().
class PayloadJoiner {
 public:
  // Before the first task of a piece of `tasks` tasks. `to` receives the payloads. most_task_bytes: of all pieces.
  void begin_piece(uint8_t* to, uint64_t tasks, uint64_t most_task_bytes) {
    task_bytes_ = most_task_bytes;
    to_ = to;
    tasks_.clear();
    tasks_.resize(tasks);
    end_ = next_ = copied_ = 0;
  }

  // Memory for the payloads of a task.
  std::unique_ptr<uint8_t[]> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<uint8_t[]> memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    return std::make_unique_for_overwrite<uint8_t[]>(task_bytes_);
  }

  // A task has `bytes` bytes in memory of take(). Copies what has a place by now, and calls placed(task, begin) for
  // each: when all tasks have been added, all are copied.
  template <typename Placed>
  void add(uint64_t task, std::unique_ptr<uint8_t[]> memory, uint64_t bytes, Placed placed) {
    std::unique_lock lock(mutex_);
    tasks_[task] = {std::move(memory), bytes, 0};
    for (; next_ < tasks_.size() && tasks_[next_].memory; ++next_) {
      tasks_[next_].begin = end_;
      end_ += tasks_[next_].bytes;
    }
    while (copied_ < next_) {
      const uint64_t one = copied_++;
      Task mine = std::move(tasks_[one]);
      lock.unlock();
      std::memcpy(to_ + mine.begin, mine.memory.get(), mine.bytes);
      placed(one, mine.begin);
      lock.lock();
      free_.push_back(std::move(mine.memory));
    }
  }

  // Of all payloads, when all tasks have been added.
  uint64_t bytes() const { return end_; }

 private:
  struct Task {
    std::unique_ptr<uint8_t[]> memory;
    uint64_t bytes, begin;
  };

  std::mutex mutex_;
  uint8_t* to_ = nullptr;
  uint64_t task_bytes_ = 0;
  std::vector<std::unique_ptr<uint8_t[]>> free_;
  std::vector<Task> tasks_;
  uint64_t next_ = 0, copied_ = 0;  // tasks whose places are known; that are copied, or being copied
  uint64_t end_ = 0;                // of the payloads that have a place
};

}  // namespace narrowcast::store
