// Times a sample of a communicator's calls with events, without waiting for them, to compare them with predictions.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "nccl/abi/operations.h"
#include "nccl/ranks/event_pairs.h"
#include "nccl/report/statistics.h"

namespace narrowcast::nccl {

// Used by the thread that makes a call, with the communicator's device current.
class CallTimer {
 public:
  explicit CallTimer(Statistics& statistics) : statistics_(statistics) {}

  // Before a call outside of graphs is put on a stream. predict: returns its predicted microseconds; called only for
  // calls of the sample.
  void begin(Operation operation, void* stream, const std::function<std::optional<double>()>& predict);
  // After it. Does nothing if the call is not of the sample.
  void end(void* stream) { samples_.end(stream); }

 private:
  struct Sample {
    Operation operation;
    double predicted;  // microseconds
  };

  Statistics& statistics_;
  EventPairs<Sample, 4> samples_;
  std::array<int, operation_count> calls_{}, timed_{};
};

}  // namespace narrowcast::nccl
