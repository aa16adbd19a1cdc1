// Texts for errors of the operating system, which name the limit that was reached and the setting that raises it.
#pragma once

#include <string>
#include <system_error>

namespace narrowcast {

// For an errno.
std::string system_error_text(int error);

// For the exception of a thread that could not be started. Comes after "cannot start a thread: ".
std::string thread_error_text(const std::system_error& error);

}  // namespace narrowcast
