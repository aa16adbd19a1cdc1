// The lock that makes opening and closing a shared table atomic.
#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/descriptor.h"
#include "narrowcast/types.h"

namespace narrowcast::store {

// A byte of a file in /dev/shm that only this user can open: readers of the table file could hold a lock of that one.
// It ends with the process, also with a killed one.
class OpenLock {
 public:
  OpenLock() = default;
  OpenLock(const OpenLock&) = delete;
  OpenLock& operator=(const OpenLock&) = delete;

  // Waits as long as the process that has the lock makes progress.
  //   shared_name: of the memory of the table.
  //   name: of the table, for messages.
  // Errors: TIMEOUT after 60 seconds without progress, or the limit for tests; SYSTEM_ERROR; ABORTED.
  ncast_status lock(const std::string& shared_name, const std::string& name);
  void unlock() { file_.close(); }
  // Tells those who wait that this process is still at work. Any number of threads may do so.
  void note_progress();
  static void limit_wait(double seconds);

 private:
  bootstrap::Descriptor file_;  // closing it releases the lock
  uint64_t number_ = 0;         // of the table
};

}  // namespace narrowcast::store
