// What a simulation keeps of the workers of groups, and of what they wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

namespace narrowcast::plan::simulate {

inline constexpr double never = std::numeric_limits<double>::infinity();

// Something that groups wait for: messages, credits, signals, completed steps, packets.
struct Awaited {
  std::deque<double> arrivals;    // when each that has not been taken arrives, or arrived
  std::vector<uint32_t> waiting;  // runs
};

enum class Phase : uint8_t { starting, working, transferring, ending, done };

// A worker: it executes a program for its micro-batches, one after another.
struct Run {
  uint32_t program = 0;
  uint32_t worker = 0;  // of the program
  uint32_t call = 0;
  uint32_t batch = 0;    // of the call
  uint32_t batches = 0;  // that it has ended, in all calls
  size_t task = 0;
  Phase phase = Phase::starting;
  double left = 0;       // of the transfer, from 1 to 0
  double rate = 0;       // of progress per microsecond
  double updated = 0;    // when `left` was computed
  uint32_t version = 0;  // events of earlier versions are void
  double begin = 0;      // of the task
  bool at_barrier = false;
};

struct Event {
  double time;
  uint32_t run;
  uint32_t version;
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : run > other.run; }
};

// When the workers of a program were busy.
struct Busy {
  double total = 0, first = never, last = 0;
  uint32_t working = 0;  // workers
  double since = 0;
};

}  // namespace narrowcast::plan::simulate
