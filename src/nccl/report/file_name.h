// Names of files that each process writes.
#pragma once

#include <string>
#include <string_view>

namespace narrowcast::nccl {

// The text with every mark, such as %p, replaced.
inline std::string replaced(std::string text, std::string_view mark, std::string_view value) {
  for (size_t at = 0; (at = text.find(mark, at)) != text.npos; at += value.size()) text.replace(at, mark.size(), value);
  return text;
}

}  // namespace narrowcast::nccl
