// State of the search for races.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/verify/accesses.h"
#include "plan/verify/clocks.h"

namespace narrowcast::plan::verify {

// A vector clock: for each actor, the epoch up to which its accesses happened before, and the one up to which its reads
// did. They differ only if there are packets or relaxed signals, which order the reads of the other side, but not its
// writes.
struct Clock {
  Row accesses, reads;
};

// A clock that an actor releases, and the epochs of the actor itself.
struct Stamp {
  Clock clock;
  uint32_t component = none;
  uint32_t epoch = 0, read_epoch = 0;
};

// A message in a ring, or packets in scratch.
struct Passed {
  Stamp stamp;
  uint32_t flat = none;   // the step that sent or wrote it
  uint32_t position = 0;  // the first cell, in scratch
};

template <typename T>
class Queue {
 public:
  bool is_empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  const T& operator[](size_t index) const { return items_[head_ + index]; }
  T& operator[](size_t index) { return items_[head_ + index]; }
  void push(T item) { items_.push_back(std::move(item)); }
  void drop(size_t count) {
    for (size_t i = 0; i < count; ++i) items_[head_ + i] = {};
    head_ += count;
    if (head_ == items_.size()) {
      items_.clear();
      head_ = 0;
    }
  }

 private:
  std::vector<T> items_;
  size_t head_ = 0;
};

struct Signal {
  Stamp stamp;
  Clock entry;  // what a relaxed signal releases: the rank has entered the call
  uint32_t group = none;
  uint32_t component = none, completion = 0;  // the epoch of the signal itself
  uint32_t index = none;                      // in SharedSemaphores
  bool relaxed = false;
  uint32_t followers = 0;  // signals of this call so far that follow it through other ranks
};

struct GroupState {
  Clock seen;  // acquired by all threads
  // If threads are independent: acquired by some threads since the last sync.
  Clock pending;
  // The clocks of writers that entered the call, acquired from packets since the last sync, by the number of cells of
  // the packets. They are known to every thread that moves a part of as many cells.
  std::vector<std::pair<uint32_t, Clock>> polled;
  uint32_t synced = 0;  // accesses up to this epoch have been made by all threads
  uint32_t base = 0;    // epochs of this call begin after it
  uint32_t next = 0;    // flat step
};

struct EngineState {
  Clock seen;
  // The flat steps that it has executed. A step is listed twice if it names the port twice. The i-th has the epochs 2 i
  // + 1 (reads) and 2 i + 2 (writes).
  std::vector<uint32_t> steps;
};

struct Semaphore {
  Queue<Signal> signals;  // if one group signals: those not yet awaited; otherwise all
  uint64_t dropped = 0;   // signals that are no longer in the queue
  uint32_t waits = 0;     // in this call
  // If several groups signal: by number of calls, the clocks that a wait and a relaxed wait acquire from all signals of
  // these calls.
  std::vector<std::array<Clock, 2>> learned = std::vector<std::array<Clock, 2>>(1);
};

struct PlanState {
  std::vector<GroupState> groups;
  std::vector<Queue<Passed>> rings;
  std::vector<Semaphore> semaphores;
  std::vector<uint32_t> dependents;  // of each flat step: how many flat steps depend on it
  std::vector<Accesses> memory;      // of each map
  size_t scratch_stride = 0;         // from one copy of the scratch to the next
};

struct Viewer {
  uint32_t actor;
  uint32_t epoch;  // of the access
  const Clock* clock;
  uint32_t synced;
};

}  // namespace narrowcast::plan::verify
