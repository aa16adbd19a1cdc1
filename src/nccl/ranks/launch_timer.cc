#include "nccl/ranks/launch_timer.h"

namespace narrowcast::nccl {

LaunchTimer::~LaunchTimer() {
  if (first_ != nullptr) driver()->cuEventDestroy_v2(first_);
}

void LaunchTimer::begin(const CommunicatorRecord& record, void* stream) {
  if (first_ == nullptr) {
    if (driver()->cuEventCreate(&first_, 0) != 0 || driver()->cuEventRecord(first_, stream) != 0) return;
  }
  samples_.collect([&](uint32_t launch, void* begin, double milliseconds) {
    float since_first = 0;
    // Negative if another stream was ahead of that of the first launch.
    if (driver()->cuEventElapsedTime(&since_first, first_, begin) == 0 && since_first >= 0)
      record.add_time(launch, static_cast<double>(since_first), milliseconds);
  });
  samples_.begin(stream, record.launch());
}

}  // namespace narrowcast::nccl
