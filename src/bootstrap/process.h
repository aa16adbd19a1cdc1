// Which process a rank is, and whether it still lives.
#pragma once

#include <cstdint>

namespace narrowcast::bootstrap {

// A process for all time: the kernel reuses pids, but not with the same start time. Lies in shared memory.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;     // clock ticks since boot, from /proc/<pid>/stat
  uint64_t pid_namespace = 0;  // pids mean something only within one
};

// The calling process. start_time is 0 where /proc cannot be read.
ProcessIdentity current_process();

// False once the process has ended, reaped or not. What cannot be found out (no descriptors left) counts as alive: an
// error must be certain.
bool is_alive(const ProcessIdentity& process);

}  // namespace narrowcast::bootstrap
