// A hash for texts that ranks compare. Not for protection against adversaries.
#pragma once

#include <cstdint>
#include <string_view>

namespace narrowcast {

constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  return hash;
}

}  // namespace narrowcast
