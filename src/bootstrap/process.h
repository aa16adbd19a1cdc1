// Identity and liveness of processes.
#pragma once

#include <cstdint>

#include "narrowcast/types.h"

namespace narrowcast::bootstrap {

// Identifies a process uniquely: the kernel reuses pids, but not with the same start time. Stored in shared memory.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;     // clock ticks since boot, from /proc/<pid>/stat
  uint64_t pid_namespace = 0;  // pids are valid within one namespace
};

// The calling process. Error: SYSTEM_ERROR if /proc cannot be read.
ncast_status find_current_process(ProcessIdentity* self);
// The same; start_time is 0 after an error.
ProcessIdentity current_process();

// False once the process has ended, even if it is a zombie. If this cannot be determined, the process counts as alive,
// so that no rank is wrongly reported dead. Without free descriptors, a process that has the pid of one that has ended
// passes for it.
bool is_alive(const ProcessIdentity& process);

}  // namespace narrowcast::bootstrap
