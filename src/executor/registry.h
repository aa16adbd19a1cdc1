// The communicators that exist. Users pass their pointers on any thread: only registered ones are dereferenced, and
// none is freed while a function uses it.
#pragma once

#include "executor/communicator.h"

namespace narrowcast::executor {

// Keeps a communicator from being freed, from begin() to the end of the scope.
class CommUse {
 public:
  CommUse() = default;
  CommUse(const CommUse&) = delete;
  CommUse& operator=(const CommUse&) = delete;
  ~CommUse();

  // Once. Errors: INVALID_ARGUMENT when comm is NULL, no living communicator, or one that is being destroyed;
  // UNSUPPORTED when it was made by the process that this one was forked from.
  ncast_status begin(const char* function, const ncast_comm* comm) { return begin(function, comm, false); }

  // As begin(), but also while it is being destroyed: an abort ends the calls that its destruction waits for.
  ncast_status begin_abort(const char* function, const ncast_comm* comm) { return begin(function, comm, true); }

 private:
  ncast_status begin(const char* function, const ncast_comm* comm, bool may_end);

  const ncast_comm* comm_ = nullptr;
};

// Registers a new communicator, which belongs to the user from now on.
void add_communicator(const ncast_comm* comm);

// Returns when no function uses the communicator, no call is left and it is freed; that of a process which this one was
// forked from is only forgotten. Errors: INVALID_ARGUMENT, as begin(), and nothing is freed; else the communicator's
// own of waiting until it is idle.
ncast_status destroy_communicator(const char* function, ncast_comm* comm);

}  // namespace narrowcast::executor
