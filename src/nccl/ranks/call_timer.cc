#include "nccl/ranks/call_timer.h"

#include <algorithm>

#include "nccl/libraries/cuda_driver.h"

namespace narrowcast::nccl {
namespace {

// Every eighth call of an operation is timed until there are this many times.
constexpr int step = 8, most_timed = 32;
// Launches take a large part of shorter calls, unlike in the measurements of a cost model.
constexpr double least_microseconds = 50;

}  // namespace

CallTimer::~CallTimer() {
  for (const Sample& sample : samples_)
    for (void* const event : {sample.begin, sample.end})
      if (event != nullptr) driver()->cuEventDestroy_v2(event);
}

void CallTimer::begin(Operation operation, void* stream, const std::function<std::optional<double>()>& predict) {
  if (timed_[operation] == most_timed || ++calls_[operation] % step != 0) return;
  collect();
  const auto sample = std::ranges::find(samples_, false, &Sample::is_pending);
  if (sample == samples_.end()) return;
  const std::optional<double> predicted = predict();
  if (!predicted || *predicted < least_microseconds) return;
  for (void** const event : {&sample->begin, &sample->end})
    if (*event == nullptr && driver()->cuEventCreate(event, 0) != 0) return;
  if (driver()->cuEventRecord(sample->begin, stream) != 0) return;
  sample->operation = operation;
  sample->predicted = *predicted;
  current_ = &*sample;
}

void CallTimer::end(void* stream) {
  if (current_ == nullptr) return;
  current_->is_pending = driver()->cuEventRecord(current_->end, stream) == 0;
  current_ = nullptr;
}

void CallTimer::collect() {
  for (Sample& sample : samples_) {
    if (!sample.is_pending || driver()->cuEventQuery(sample.end) == cuda_not_ready) continue;
    sample.is_pending = false;
    float milliseconds = 0;
    if (driver()->cuEventElapsedTime(&milliseconds, sample.begin, sample.end) != 0) continue;
    ++timed_[sample.operation];
    statistics_.count_time(sample.operation, 1e3 * static_cast<double>(milliseconds) / sample.predicted);
  }
}

}  // namespace narrowcast::nccl
