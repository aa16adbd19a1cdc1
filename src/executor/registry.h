// The registry of communicators. Callers may pass any pointer from any thread, so only registered pointers are
// dereferenced, and a communicator is not freed while a function uses it.
#pragma once

#include "executor/communicator.h"

namespace narrowcast::executor {

// Prevents a communicator from being freed, from begin() to the end of the scope.
class CommUse {
 public:
  CommUse() = default;
  CommUse(const CommUse&) = delete;
  CommUse& operator=(const CommUse&) = delete;
  ~CommUse();

  // Call once. Errors: INVALID_ARGUMENT if comm is NULL, is not registered, or is being destroyed; UNSUPPORTED if a
  // process that this one was forked from created it.
  ncast_status begin(const char* function, const ncast_comm* comm) { return begin(function, comm, false); }

  // As begin(), but also INVALID_ARGUMENT if another communicator has the address of the one with this number by now.
  ncast_status begin_same(const char* function, const ncast_comm* comm, uint64_t number);

  // As begin(), but also allowed while the communicator is being destroyed: the destruction waits for calls, which an
  // abort ends.
  ncast_status begin_abort(const char* function, const ncast_comm* comm) { return begin(function, comm, true); }

 private:
  ncast_status begin(const char* function, const ncast_comm* comm, bool allow_closing);

  const ncast_comm* comm_ = nullptr;
};

// Registers a new communicator. destroy_communicator() frees it.
void add_communicator(const ncast_comm* comm);

// Waits until no function uses the communicator and its calls have run, then frees it. A communicator that was
// inherited by a fork is unregistered but not freed. An interruption aborts the communicator. Errors: INVALID_ARGUMENT,
// as for begin(), and nothing is freed; otherwise ABORTED if this thread was interrupted, or the error of
// wait_until_idle(), and the communicator is freed.
ncast_status destroy_communicator(const char* function, ncast_comm* comm);

}  // namespace narrowcast::executor
