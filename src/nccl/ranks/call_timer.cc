#include "nccl/ranks/call_timer.h"

namespace narrowcast::nccl {
namespace {

// Every eighth call of an operation is timed until there are this many times.
constexpr int step = 8, most_timed = 32;
// Launches take a large part of shorter calls, unlike in the measurements of a cost model.
constexpr double least_microseconds = 50;

}  // namespace

void CallTimer::begin(Operation operation, void* stream, const std::function<std::optional<double>()>& predict) {
  if (timed_[operation] == most_timed || ++calls_[operation] % step != 0) return;
  samples_.collect([this](const Sample& sample, void*, double milliseconds) {
    ++timed_[sample.operation];
    statistics_.count_time(sample.operation, 1e3 * milliseconds / sample.predicted);
  });
  if (!samples_.has_free()) return;
  const std::optional<double> predicted = predict();
  if (predicted && *predicted >= least_microseconds) samples_.begin(stream, {operation, *predicted});
}

}  // namespace narrowcast::nccl
