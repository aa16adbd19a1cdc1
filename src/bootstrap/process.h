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

// The calling process. start_time is 0 if /proc cannot be read.
ProcessIdentity current_process();

// False once the process has ended, even if it is a zombie. If this cannot be determined (for example, without free
// descriptors), the process counts as alive, so that no rank is wrongly reported dead.
bool is_alive(const ProcessIdentity& process);

}  // namespace narrowcast::bootstrap
