// Times a sample of a communicator's calls with events, without waiting for them, to compare them with predictions.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "nccl/abi/operations.h"
#include "nccl/report/statistics.h"

namespace narrowcast::nccl {

// Used by the thread that makes a call, with the communicator's device current.
class CallTimer {
 public:
  explicit CallTimer(Statistics& statistics) : statistics_(statistics) {}
  ~CallTimer();
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  // Before a call outside of graphs is put on a stream. predict: returns its predicted microseconds; called only for
  // calls of the sample.
  void begin(Operation operation, void* stream, const std::function<std::optional<double>()>& predict);
  // After it. Does nothing if the call is not of the sample.
  void end(void* stream);

 private:
  struct Sample {
    void *begin = nullptr, *end = nullptr;  // events
    Operation operation = {};
    double predicted = 0;
    bool is_pending = false;
  };

  // Counts samples whose calls are complete.
  void collect();

  Statistics& statistics_;
  std::array<Sample, 4> samples_;
  Sample* current_ = nullptr;
  std::array<int, operation_count> calls_{}, timed_{};
};

}  // namespace narrowcast::nccl
