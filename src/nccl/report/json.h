// JSON as text.
#pragma once

#include <string>
#include <string_view>

namespace narrowcast::nccl {

// A string. Control characters are left out.
inline std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    if (static_cast<unsigned char>(letter) >= 0x20) result += letter;
  }
  return result + "\"";
}

}  // namespace narrowcast::nccl
