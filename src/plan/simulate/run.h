// State of a simulation: workers, and what they wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace narrowcast::plan::simulate {

inline constexpr double never = std::numeric_limits<double>::infinity();

// A queue of arrival times. A large plan has very many, most of them short or empty.
class Arrivals {
 public:
  void assign(size_t count, double time) { times_.assign(count, time); }
  void push_back(double time) { times_.push_back(time); }
  void pop_front() {
    if (++taken_ == times_.size()) {
      times_.clear();
      taken_ = 0;
    }
  }
  size_t size() const { return times_.size() - taken_; }
  double operator[](size_t number) const { return times_[taken_ + number]; }

 private:
  std::vector<double> times_;
  size_t taken_ = 0;
};

// Something that groups wait for: messages, credits, signals, completed steps, packets.
struct Awaited {
  Arrivals arrivals;
  std::vector<uint32_t> waiting;  // runs
};

enum class Phase : uint8_t { starting, working, transferring, ending, done };

// A worker, which executes a task list for its micro-batches in turns. In turn t it executes the tasks of stage s for
// its micro-batch t - s. Most task lists have one stage, so that micro-batches follow each other.
struct Run {
  uint32_t task_list = 0;
  uint32_t worker = 0;  // of the task list
  uint32_t call = 0;
  uint32_t turn = 0;   // of the call
  uint32_t turns = 0;  // completed, in all calls
  size_t task = 0;
  Phase phase = Phase::starting;
  double left = 0;     // of the work or transfer, from 1 to 0
  double rate = 0;     // of progress per microsecond
  double updated = 0;  // when `left` was computed
  double begin = 0;    // of the task
  // When the payload of the last task was loaded, if it received one. The next payload is loaded from then on.
  double loaded = -1;
  bool loads_ahead = false;  // the payload of the task has been loaded
  bool at_barrier = false;
  double posted = 0;   // of a posted transfer: its time
  uint32_t owner = 0;  // of a posted transfer: the run that posted it; otherwise the run itself
  uint32_t puts = 0;   // posted transfers that signals wait for
};

// When the workers of a task list were busy.
struct Busy {
  double total = 0;
  uint32_t working = 0;  // workers
  double since = 0;
};

}  // namespace narrowcast::plan::simulate
