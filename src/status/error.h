// How a failure becomes a status and a sentence. The lowest folder: everything may use it.
#pragma once

#include <utility>

#include "narrowcast/types.h"

namespace narrowcast {

// Keeps the sentence for ncast_last_error() on this thread and returns `status`, so that a check reads
//   if (rank >= ranks) return fail(NCAST_INVALID_ARGUMENT, "ncast_send: peer %d, but the communicator has %d ranks", ...);
[[nodiscard]] ncast_status fail(ncast_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The body of a C ABI function: no exception passes.
ncast_status fail_with_current_exception(const char* function) noexcept;

template <typename Body>
ncast_status guarded(const char* function, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return fail_with_current_exception(function);
  }
}

}  // namespace narrowcast
