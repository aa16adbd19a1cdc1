#include "executor/cuda/generated/text.h"

#include <cstdarg>
#include <cstdio>

namespace narrowcast::executor::cuda::generated {

std::string text(const char* format, ...) {
  char line[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

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
