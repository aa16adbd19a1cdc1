#include "status/error.h"

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "status/system_error.h"

namespace narrowcast {
namespace {
// A fixed buffer, because reporting an error must not allocate.
thread_local char last_message[1024] = "";
}  // namespace

ncast_status fail(ncast_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_message, sizeof last_message, format, arguments);
  va_end(arguments);
  return status;
}

ncast_status fail_with_current_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(NCAST_SYSTEM_ERROR, "%s: out of host memory", function);
  } catch (const std::system_error& error) {
    // Of the standard library, only the constructor of a thread throws EAGAIN.
    if (error.code() == std::errc::resource_unavailable_try_again)
      return fail(NCAST_SYSTEM_ERROR, "%s: cannot start a thread: %s", function, thread_error_text(error).c_str());
    return fail(NCAST_SYSTEM_ERROR, "%s: %s", function, error.what());
  } catch (const std::exception& error) {
    return fail(NCAST_INTERNAL, "%s: %s", function, error.what());
  } catch (...) {
    return fail(NCAST_INTERNAL, "%s: an exception of unknown type", function);
  }
}

}  // namespace narrowcast

extern "C" const char* ncast_last_error(void) { return narrowcast::last_message; }
