#pragma once

#include <time.h>

namespace narrowcast::testing {

// The CPU time of this thread. Unlike the time of day, it hardly depends on what else the machine is doing.
inline double processor_seconds() {
  timespec time = {};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace narrowcast::testing
