// The message of the last error.
#pragma once

#include <string_view>

#include "narrowcast/types.h"

namespace narrowcast::testing {

inline bool error_contains(std::string_view part) {
  return std::string_view(ncast_last_error()).find(part) != std::string_view::npos;
}

}  // namespace narrowcast::testing
