// Structs of the C ABI that can grow. They begin with `size_t struct_bytes`, which the caller sets to their size.
#pragma once

#include <algorithm>
#include <cstring>

#include "status/error.h"

namespace narrowcast {

// Larger sizes are rejected, because they probably come from uninitialised memory.
inline constexpr size_t max_struct_bytes = 4096;

// Copies `value` to the caller's struct. If the caller is older than the library, only the members that it knows are
// written; if it is newer, members that the library does not know become 0. Errors: INVALID_ARGUMENT.
template <typename Struct>
ncast_status fill_struct(const char* function, const char* argument, Struct value, Struct* out) {
  if (out == nullptr) return null_argument(function, argument);
  const size_t bytes = out->struct_bytes;
  if (bytes <= sizeof bytes || bytes > max_struct_bytes)
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s->struct_bytes is %zu, not the size of the struct", function, argument,
                bytes);
  value.struct_bytes = bytes;
  std::memcpy(static_cast<void*>(out), &value, std::min(bytes, sizeof value));
  if (bytes > sizeof value) std::memset(reinterpret_cast<char*>(out) + sizeof value, 0, bytes - sizeof value);
  return NCAST_OK;
}

// Copies the caller's struct to `value`, which contains the defaults. Members that an older caller does not know keep
// their defaults. Errors: INVALID_ARGUMENT; UNSUPPORTED if a newer caller has set a member that this library does not
// know.
template <typename Struct>
ncast_status read_struct(const char* argument, const Struct& given, size_t shortest_bytes, Struct* value) {
  const size_t bytes = given.struct_bytes;
  if (bytes < shortest_bytes || bytes > max_struct_bytes) {
    return fail(NCAST_INVALID_ARGUMENT, "%s.struct_bytes is %zu, not the size of the struct: was it initialised?",
                argument, bytes);
  }
  const auto* const from = reinterpret_cast<const unsigned char*>(&given);
  for (size_t i = sizeof given; i < bytes; ++i) {
    if (from[i] != 0)
      return fail(NCAST_UNSUPPORTED, "%s sets a member at byte %zu, which this version of the library does not have",
                  argument, i);
  }
  std::memcpy(static_cast<void*>(value), &given, std::min(bytes, sizeof given));
  value->struct_bytes = sizeof given;
  return NCAST_OK;
}

}  // namespace narrowcast
