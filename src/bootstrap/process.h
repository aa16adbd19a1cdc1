// Identity and liveness of processes.
#pragma once

#include <cstdint>

namespace narrowcast::bootstrap {

// Identifies a process uniquely: the kernel reuses pids, but not with the same start time. Stored in shared memory.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;     // clock ticks since boot, from /proc/<pid>/stat
  uint64_t pid_namespace = 0;  // pids are valid within one namespace
};

// The calling process. start_time is 0 where /proc cannot be read.
ProcessIdentity current_process();

// False once the process has ended, even if it is a zombie. Counts as alive if that cannot be determined (for example,
// without free descriptors): an error must be certain.
bool is_alive(const ProcessIdentity& process);

}  // namespace narrowcast::bootstrap
