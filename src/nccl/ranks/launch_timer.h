// Records the times on the GPU of a sample of a communicator's launches: calls, or groups of calls.
#pragma once

#include <cstdint>

#include "nccl/ranks/event_pairs.h"
#include "nccl/report/call_record.h"

namespace narrowcast::nccl {

// Used by the thread that makes a call, with the communicator's device current.
class LaunchTimer {
 public:
  LaunchTimer() = default;
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // One launch in eight. The same launches on all ranks, and in the course of a program every launch of its step:
  // multiples of the golden ratio are spread evenly, whatever the number of launches of a step.
  static bool is_sampled(uint32_t launch) { return launch * 0x9e3779b1u < 1u << 29; }

  // Before a launch outside of graphs, and after it.
  void begin(const CommunicatorRecord& record, void* stream);
  void end(void* stream) { samples_.end(stream); }

 private:
  void* first_ = nullptr;  // the event from which times count
  EventPairs<uint32_t, 64> samples_;
};

}  // namespace narrowcast::nccl
