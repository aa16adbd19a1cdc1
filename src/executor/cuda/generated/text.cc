#include "executor/cuda/generated/text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace narrowcast::executor::cuda::generated {

std::string text(const char* format, ...) {
  char line[400];  // enough for almost all
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = std::vsnprintf(line, sizeof line, format, arguments);
  std::string made(line, std::min(static_cast<size_t>(std::max(length, 0)), sizeof line - 1));
  if (length > static_cast<int>(made.size())) {
    made.resize(static_cast<size_t>(length));
    std::vsnprintf(made.data(), made.size() + 1, format, again);
  }
  va_end(again);
  va_end(arguments);
  return made;
}

std::string indented(const std::string& lines) {
  std::string made;
  for (const char one : lines) {
    if (made.empty() || made.back() == '\n') made += "  ";
    made += one;
  }
  return made;
}

const char* boolean(bool value) { return value ? "true" : "false"; }
const char* name_of(ncast_redop op) {
  switch (op) {
    case NCAST_PROD: return "NCAST_PROD";
    case NCAST_MAX: return "NCAST_MAX";
    case NCAST_MIN: return "NCAST_MIN";
    case NCAST_AVG: return "NCAST_AVG";
    default: return "NCAST_SUM";
  }
}
std::string name_of(ncast_dtype dtype) {
  std::string name = std::string("NCAST_") + ncast_dtype_name(dtype);
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return name;
}

}  // namespace narrowcast::executor::cuda::generated
