// Structs that begin with their size, so that a program built against an older, shorter version keeps working.
#pragma once

#include <algorithm>
#include <cstring>

#include "status/error.h"

namespace narrowcast {

// Copies `from` to *to, at most the to->struct_bytes bytes that the caller knows of; struct_bytes itself stays.
template <typename Struct>
ncast_status copy_to_sized(const char* function, const Struct& from, Struct* to) {
  const size_t known = to->struct_bytes;
  if (known < sizeof known)
    return fail(NCAST_INVALID_ARGUMENT, "%s: struct_bytes is %zu; set it to the size of the struct", function, known);
  Struct copy = from;
  copy.struct_bytes = known;
  std::memcpy(to, &copy, std::min(known, sizeof copy));
  return NCAST_OK;
}

}  // namespace narrowcast
