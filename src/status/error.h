// Error reporting: a status and a message. This is the lowest folder, which every other folder may use.
#pragma once

#include <cxxabi.h>

#include <utility>

#include "narrowcast/types.h"

namespace narrowcast {

// Stores the message for ncast_last_error() on this thread and returns `status`:
//   if (peer >= ranks)
//     return fail(NCAST_INVALID_ARGUMENT, "ncast_send: peer %d, but the communicator has %d ranks", peer, ranks);
[[nodiscard]] ncast_status fail(ncast_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// "<function>: <argument> is NULL".
[[nodiscard]] inline ncast_status null_argument(const char* function, const char* argument) {
  return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

// Reports the exception that is being handled. Call it in a catch block only.
ncast_status fail_with_current_exception(const char* function) noexcept;

// Runs the body of a function of the C API and converts exceptions to errors. If a callback of the user ends the
// thread by pthread_exit(), the thread ends: Python does so with threads that run when the interpreter exits.
template <typename Body>
ncast_status guarded(const char* function, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return fail_with_current_exception(function);
  }
}

}  // namespace narrowcast
